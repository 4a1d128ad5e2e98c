"""A metadata service over real HTTP: version 2 only, 401 without a good token, faults on demand."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from userdata.agent.aws.imds import IDENTITY


class MetadataServer:
    """``documents`` maps paths to texts; what is not in it is a 404."""

    def __init__(self, wall: Callable[[], float] | None = None) -> None:
        self.documents: dict[str, str] = {}
        self.tokens: set[str] = set()
        self.status: int | None = None  # answered to these methods, such as 503
        self.methods = {"GET", "PUT"}
        self.requests: list[tuple[str, str, int]] = []
        self.wall = wall
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self._answer()

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer(server.post(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, posted: str = "") -> None:
                status, headers, text = server.answer(self.command, self.path, self.headers, posted)
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its base's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def identify(self, instance: str, zone: str, kind: str = "t3.micro", region: str = "us-west-2") -> None:
        document = {"instanceId": instance, "accountId": "123456789012", "availabilityZone": zone}
        self.documents[IDENTITY] = json.dumps({**document, "region": region, "instanceType": kind})

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], posted: str = ""
    ) -> tuple[int, dict[str, str], str]:
        """Return status, headers and text; for those who need no connection, too."""
        status, text = 200, posted
        if method == "PUT":
            ttl = headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            if path != "/latest/api/token" or not ttl or not 1 <= int(ttl) <= 21600:
                status = 400
            else:
                text = secrets.token_urlsafe(16)
                self.tokens |= set() if self.status else {text}
        elif method == "GET":
            if headers.get("X-aws-ec2-metadata-token") not in self.tokens:
                status = 401
            else:
                text = self.documents.get(path, "")
                status = 200 if path in self.documents else 404
        if self.status and method in self.methods:
            status = self.status
        self.requests.append((method, path, status))
        text = text if status == 200 else ""
        date = {"Date": formatdate(self.wall(), usegmt=True)} if self.wall else {}
        return status, {**date, "Content-Length": str(len(text.encode()))}, text

    def post(self, body: bytes) -> str:
        """Answer what is not metadata; a subclass knows what it is."""
        raise NotImplementedError

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
