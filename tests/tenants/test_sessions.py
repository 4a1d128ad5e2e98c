"""How a tenant's user gets in: the page's commands, by the AWS CLI and Session Manager's plugin.

Both are the real programs; the service and the agent are doubles (`tests.tenants.session_service`), which
follow the stack's documents.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.site.stage import ROOT
from infra.components.tenants.tenancy import forwarding, shell
from tests.tenants.session_service import RefusedError, SessionService, serving
from tests.waiting import wait_until

PORT, SHELL = "gpu-spot-shared-lab-vision-1a2b3c4", "gpu-spot-shared-lab-vision.shell-1a2b3c4"
COMMANDS = re.findall(r"^aws ssm start-session .*$", (ROOT / "docs/shared-hosts.md").read_text(), re.M)


def command(document: str) -> list[str]:
    """Return the page's command for a document."""
    [line] = [line for line in COMMANDS if f"{document[:-7]}… " in f"{line} "]
    return shlex.split(line.replace("i-…", "i-0123456789abcdef0").replace("-…", "-1a2b3c4"))


def request(argv: list[str]) -> dict[str, Any]:
    """Return the request of a command, as the AWS CLI reads it."""
    said = dict(zip(argv[3::2], argv[4::2], strict=True))
    listed = {"Target": said["--target"], "DocumentName": said["--document-name"]}
    if parameters := said.get("--parameters"):
        return {**listed, "Parameters": {k: [v] for k, v in (parameters.split("="),)}}
    return listed


def service(port: int = 8001) -> SessionService:
    return SessionService({PORT: forwarding("vision", port), SHELL: shell("vision")})


def test_the_pages_commands_start_the_stacks_documents() -> None:
    made = service()
    assert len(COMMANDS) == 2
    for document in (PORT, SHELL):
        made.start(request(command(document)))
    ports, shells = made.sessions.values()
    assert ports["properties"] == {
        "portNumber": "8001",
        "type": "LocalPortForwarding",
        "localPortNumber": "8888",
    }
    assert shells["properties"]["linux"]["commands"].startswith("exec docker exec ")
    for wrong in ({"portNumber": ["22"]}, {"localPortNumber": ["8888; id"]}):
        with pytest.raises(RefusedError, match="InvalidParameters"):
            made.start({**request(command(PORT)), "Parameters": wrong})
    with pytest.raises(RefusedError, match="InvalidDocument"):
        made.start({"Target": "i-0123456789abcdef0"})


@contextlib.contextmanager
def session(
    made: SessionService, argv: list[str], aws: str, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of the page until the block ends."""
    with serving(made) as url:
        environment = {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "HOME": str(folder),
            "AWS_ENDPOINT_URL_SSM": url,
            "AWS_DEFAULT_REGION": "us-west-2",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
        with (folder / "said").open("wb") as said:
            process = subprocess.Popen(
                [aws, *argv[1:]],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            for end in (signal.SIGINT, signal.SIGKILL):  # by the first the plugin removes its socket
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, end)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
            if process.stdin is not None:
                process.stdin.close()


@pytest.fixture
def aws(require_program: Callable[..., str]) -> str:
    """The AWS CLI; its plugin is there, too."""
    require_program("session-manager-plugin", package="session-manager-plugin (a package of AWS)")
    return require_program("aws", package="awscli")


@contextlib.contextmanager
def tenants_port() -> Iterator[int]:
    """Serve on a port as a tenant would: say every line again, in capitals."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(line.upper())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_bytes_go_to_the_tenants_port_and_back(aws: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        local = free.getsockname()[1]
    said = tmp_path / "said"
    argv = [word.replace("8888", str(local)) for word in command(PORT)]
    lines = [letter * 100_000 + b"\n" for letter in (b"a", b"b")]  # many messages each way
    with contextlib.ExitStack() as open_while:
        port = open_while.enter_context(contextlib.ExitStack())
        made = service(port.enter_context(tenants_port()))
        open_while.enter_context(session(made, argv, aws, tmp_path))
        wait_until(lambda: f"Port {local} opened" in said.read_text(), 30.0)
        users = [socket.create_connection(("127.0.0.1", local), 30.0) for _ in lines]
        for user, line in zip(users, lines, strict=True):
            user.sendall(line)
        for user, line in zip(users, lines, strict=True):
            with user, user.makefile("rb") as answer:
                assert answer.readline() == line.upper()
        port.close()
        with socket.create_connection(("127.0.0.1", local), 30.0) as user:
            assert user.recv(1) == b""
        wait_until(lambda: "Connection to destination port failed" in said.read_text(), 30.0)
    [opened, answered] = made.clients
    assert answered["ProcessedClientActions"][0]["ActionStatus"] == 1, answered
    assert opened["MessageSchemaVersion"] == "1.0"


def test_a_user_has_a_shell(aws: str, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(
        '#!/bin/sh\ntest "$*" = "exec --interactive --tty gpu-spot-tenant-vision sh" && exec sh\n'
    )
    docker.chmod(0o755)
    made, said = service(), tmp_path / "said"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        with session(made, command(SHELL), aws, tmp_path) as process:
            assert process.stdin is not None
            process.stdin.write(b"echo of vi''sion; tty && exit\n")
            process.stdin.flush()
            assert process.wait(30) == 0, said.read_text()
    assert "of vision" in said.read_text()
    assert "/dev/pts/" in said.read_text()
    assert "Exiting session with sessionId: user-" in said.read_text()
