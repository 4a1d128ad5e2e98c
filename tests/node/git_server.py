"""Repositories over HTTP by git's own server program, behind a name and a password where told so."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

QUIET: Final = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody with a name; return what it says."""
    argv = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    argv += ["-c", "protocol.file.allow=always", *arguments]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env={**os.environ, **QUIET})
    return done.stdout.strip()


def repository(folder: Path, **files: str) -> str:
    """Make a repository with a commit of ``files``, or add one to it; return the commit's id."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True)
        git(folder, "init", "-q")
        git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "-qm", "a change")
    return git(folder, "rev-parse", "HEAD")


class GitServer:
    """Serves the repositories below ``folder``; ``login`` (``name:password``) is asked for if set."""

    def __init__(self, folder: Path, login: str = "") -> None:
        self.asked: list[tuple[str, str]] = []
        """Paths, and the authorisation that came along."""
        known = {"folder": folder, "login": login, "asked": self.asked}
        handler = type("Handler", (_Handler,), known)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    login: str
    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        shown = self.headers.get("Authorization", "")
        self.asked.append((path, shown))
        if self.login and shown != "Basic " + base64.b64encode(self.login.encode()).decode():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="code"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        told = {
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, capture_output=True, env={**os.environ, **QUIET, **told}
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass
