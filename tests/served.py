"""HTTP servers of tests on loopback, each in a thread while its block runs."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer


class Handler(BaseHTTPRequestHandler):
    """Hands each request's body to ``respond``, which a subclass has."""

    def _read(self) -> None:
        self.respond(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    do_GET = do_POST = do_PUT = do_DELETE = _read  # noqa: N815 - the base's names

    def respond(self, body: bytes) -> None:
        raise NotImplementedError

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def answering(server: BaseServer) -> Iterator[None]:
    """Let a server answer in a thread while the block runs."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def served(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve by a class; yield the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)  # whose threads are daemons
    if tls is not None:  # handshakes at the first read: a slow client must not block others
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with answering(server):
        yield server.server_port
