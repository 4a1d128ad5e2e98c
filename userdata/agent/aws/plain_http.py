"""One HTTP request to the metadata service over a plain socket.

``http.client`` would load OpenSSL into every process of the agent, 7 MB each (measured: 17 against 10 MB of a
process that imports nothing else); the service speaks no TLS.
No proxy from the environment may come between us and the service, either.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Final

_MOST_BYTES: Final = 1 << 16


def request(
    address: tuple[str, int], method: str, path: str, headers: Mapping[str, str], timeout: float
) -> tuple[int, dict[str, str], str]:
    """Return status, headers (names in lower case) and text.

    Raises:
        OSError: no connection, no whole answer within ``timeout`` seconds altogether, or no HTTP.
    """
    end = time.monotonic() + timeout
    lines = [f"{method} {path} HTTP/1.1", f"Host: {address[0]}", "Connection: close", "Content-Length: 0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(address, timeout) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
        received = b""
        while not _whole(received):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no whole answer within {timeout} s")
            connection.settimeout(left)
            part = connection.recv(_MOST_BYTES)
            if not part:
                break
            received += part
            if len(received) > _MOST_BYTES:
                raise OSError(f"an answer of more than {_MOST_BYTES} bytes")
    return _parse(received)


def _whole(received: bytes) -> bool:
    """Tell whether all that Content-Length announces is there; without it the connection's end is the end."""
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return False
    length = _headers(head).get("content-length", "")
    return length.isdigit() and len(body) >= int(length)


def _headers(head: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _parse(received: bytes) -> tuple[int, dict[str, str], str]:
    head, found, body = received.partition(b"\r\n\r\n")
    first = head.decode("latin-1").split("\r\n")[0].split(" ")
    if not found or len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdigit():
        raise OSError("no HTTP answer")
    headers = _headers(head)
    length = headers.get("content-length", "")
    if length.isdigit():
        if len(body) < int(length):
            raise OSError(f"{len(body)} bytes came of {length}")
        body = body[: int(length)]
    elif headers.get("transfer-encoding", "").lower() == "chunked":
        body = _join(body)
    return int(first[1]), headers, body.decode("utf-8", "replace")


def _join(chunked: bytes) -> bytes:
    """Join chunks: a size in hex, the data, a line end, until size 0 (RFC 9112, section 7.1)."""
    joined = b""
    while True:
        size, found, rest = chunked.partition(b"\r\n")
        try:
            length = int(size.split(b";")[0], 16)
        except ValueError:
            raise OSError("a chunk without a size") from None
        if not found or len(rest) < length:
            raise OSError("a chunk that is cut off")
        if not length:
            return joined
        joined, chunked = joined + rest[:length], rest[length + 2 :]
