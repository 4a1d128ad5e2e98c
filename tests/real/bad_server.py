"""An HTTP worker that misbehaves as ``MODE`` says once it is ready; ``RUNS`` gets a line for each request."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

MODE = os.environ["MODE"]
SERIAL = MODE in ("busy", "stream", "small backlog")
WORK_SECONDS = {"busy": 8.0, "stream": 24.0, "small backlog": 1.0}.get(MODE, 0.0)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
REFUSED = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
is_hung = False


def head(connection: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return b"", b""
        data += chunk
    before, _, after = data.partition(b"\r\n\r\n")
    return before.lower(), after


def read_rest(connection: socket.socket, before: bytes, body: bytes) -> None:
    length = int((before + b"\r\ncontent-length:0").partition(b"content-length:")[2].split()[0])
    while len(body) < length and (chunk := connection.recv(65536)):
        body += chunk


def serve(connection: socket.socket) -> None:
    global is_hung
    with connection:
        before, body = head(connection)
        if before.startswith(b"get /health") and not is_hung:
            connection.sendall(OK)
        elif before and not is_hung:
            with Path(os.environ["RUNS"]).open("a") as runs:
                runs.write(f"{os.getpid()}\n")
            if MODE == "crash" and b"/crash" in before:
                os._exit(1)
            if MODE == "hang" and b"/hang" in before:
                is_hung = True
            if MODE == "early refusal":
                connection.sendall(REFUSED)
                connection.shutdown(socket.SHUT_WR)
                time.sleep(1.0)  # closing at once, with bytes unread, would reset the connection and lose it
                return
            if MODE == "stream":
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
                for _ in range(int(WORK_SECONDS)):
                    connection.sendall(b".")
                    time.sleep(1.0)
                return
            read_rest(connection, before, body)
            time.sleep(WORK_SECONDS)
            if not is_hung:
                connection.sendall(FAILED if MODE == "5xx" else OK)
        while is_hung:
            time.sleep(1.0)


def main() -> None:
    address = os.environ["ADDRESS"], int(os.environ["PORT"])
    with socket.create_server(address, backlog=2 if MODE == "small backlog" else 128) as listener:
        while True:
            connection, _ = listener.accept()
            if SERIAL:
                with contextlib.suppress(OSError):
                    serve(connection)
            else:
                threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
