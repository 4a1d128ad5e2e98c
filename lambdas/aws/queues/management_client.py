"""HTTP client of RabbitMQ's management API, with a time limit for a whole call."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from typing import Any, Final

from lambdas.core.queues.management_api import ManagementApi

_MAX_RESPONSE_BYTES: Final = 1_000_000


def call(
    api: ManagementApi, path: str, tls: ssl.SSLContext, ends_at: float, method: str = "GET", body: Any = None
) -> tuple[int, bytes]:
    """Return status and body. Redirects are not followed: they would send the password elsewhere.

    ``path`` includes ``/api``; ``ends_at`` is of the monotonic clock. Raises ``OSError`` or
    ``http.client.HTTPException`` if the API does not respond, ``ValueError`` for a response that is too long.
    """
    timeout = ends_at - time.monotonic()
    if timeout <= 0:
        raise TimeoutError("no time left for this call")
    if api.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            api.host, api.port, timeout=timeout, context=tls
        )
    else:
        connection = http.client.HTTPConnection(api.host, api.port, timeout=timeout)
    credentials = base64.b64encode(f"{api.user}:{api.password}".encode()).decode()
    headers = {"Authorization": f"Basic {credentials}"}
    text = None
    if body is not None:
        text, headers["Content-Type"] = json.dumps(body), "application/json"
    try:
        connection.request(method, path, text, headers)
        response = connection.getresponse()
        return response.status, _read(response, ends_at)
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse, ends_at: float) -> bytes:
    """Read the body within the time limit; the socket's timeout applies to each packet only."""
    parts: list[bytes] = []
    size = 0
    while part := response.read1(65_536):
        parts.append(part)
        size += len(part)
        if size > _MAX_RESPONSE_BYTES:
            raise ValueError(f"the management API's response has more than {_MAX_RESPONSE_BYTES} bytes")
        if time.monotonic() > ends_at:
            raise TimeoutError("the management API's response takes too long")
    return b"".join(parts)
