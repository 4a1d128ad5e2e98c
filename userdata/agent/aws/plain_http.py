"""One HTTP request to the metadata service over a plain socket.

``http.client`` would load OpenSSL into every process of the agent, 7 MB each (measured: 17 against 10 MB of a
process that imports nothing else); the service has no TLS. Proxies of the environment are ignored.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Final

_MAX_BYTES: Final = 1 << 16


def request(
    address: tuple[str, int],
    method: str,
    path: str,
    headers: Mapping[str, str],
    timeout: float,
    *,
    may_be_long: bool = False,
) -> tuple[int, dict[str, str], str]:
    """Return status, headers (names in lower case) and text; ``may_be_long``: of a long response the status.

    Raises:
        OSError: no connection, no complete response within ``timeout`` seconds in total, or invalid HTTP.
    """
    deadline = time.monotonic() + timeout
    lines = [f"{method} {path} HTTP/1.1", f"Host: {address[0]}", "Connection: close", "Content-Length: 0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(address, timeout) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
        received = b""
        while not _is_complete(received):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"no complete response within {timeout} s")
            connection.settimeout(remaining)
            chunk = connection.recv(_MAX_BYTES)
            if not chunk:
                break
            received += chunk
            if len(received) > _MAX_BYTES:
                if may_be_long:
                    return _parse(received.partition(b"\r\n")[0] + b"\r\n\r\n")
                raise OSError(f"the response has more than {_MAX_BYTES} bytes")
    return _parse(received)


def _is_complete(received: bytes) -> bool:
    """Return whether the body has Content-Length bytes; without it the response ends with the connection."""
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return False
    length = _headers(head).get("content-length", "")
    return length.isdigit() and len(body) >= int(length)


def _headers(head: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _parse(received: bytes) -> tuple[int, dict[str, str], str]:
    head, separator, body = received.partition(b"\r\n\r\n")
    first = head.decode("latin-1").split("\r\n")[0].split(" ")
    if not separator or len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdigit():
        raise OSError("the response is not valid HTTP")
    headers = _headers(head)
    length = headers.get("content-length", "")
    if length.isdigit():
        if len(body) < int(length):
            raise OSError(f"received {len(body)} of {length} bytes")
        body = body[: int(length)]
    elif headers.get("transfer-encoding", "").lower() == "chunked":
        body = _join_chunks(body)
    return int(first[1]), headers, body.decode("utf-8", "replace")


def _join_chunks(chunked: bytes) -> bytes:
    """Decode a chunked body: hex size, data, line end, until size 0 (RFC 9112, section 7.1)."""
    joined = b""
    while True:
        size, separator, rest = chunked.partition(b"\r\n")
        try:
            length = int(size.split(b";")[0], 16)
        except ValueError:
            raise OSError("chunk without a size") from None
        if not separator or len(rest) < length:
            raise OSError("truncated chunk")
        if not length:
            return joined
        joined, chunked = joined + rest[:length], rest[length + 2 :]
