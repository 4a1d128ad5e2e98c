"""A metadata service over real HTTP: version 2 only, 401 without a good token, faults on demand."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable
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
                ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
                if self.path != "/latest/api/token" or not ttl or not 1 <= int(ttl) <= 21600:
                    self._answer(400, "")
                    return
                token = secrets.token_urlsafe(16)
                if not server.status:
                    server.tokens.add(token)
                self._answer(200, token)

            def do_GET(self) -> None:
                if self.headers.get("X-aws-ec2-metadata-token") not in server.tokens:
                    self._answer(401, "")
                elif self.path in server.documents:
                    self._answer(200, server.documents[self.path])
                else:
                    self._answer(404, "not found")

            def do_POST(self) -> None:
                self._answer(200, server.post(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, status: int, text: str) -> None:
                if server.status and self.command in server.methods:
                    status = server.status
                server.requests.append((self.command, self.path, status))
                body = text.encode() if status == 200 else b""
                self.send_response_only(status)
                if server.wall:
                    self.send_header("Date", formatdate(server.wall(), usegmt=True))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

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

    def post(self, body: bytes) -> str:
        """Answer what is not metadata; a subclass knows what it is."""
        raise NotImplementedError

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
