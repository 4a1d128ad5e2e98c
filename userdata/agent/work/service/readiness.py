"""The readiness probe of an HTTP worker."""

from __future__ import annotations

import socket
from typing import Final

from contracts.agent.config import HttpWorkers
from userdata.agent.aws import plain_http

_TIMEOUT_SECONDS: Final = 1.0


def probe(http: HttpWorkers, port: int, address: str) -> bool:
    """Return whether the worker on a port is ready: 2xx from its path, with gRPC an open port."""
    try:
        if http.is_grpc:
            socket.create_connection((address, port), _TIMEOUT_SECONDS).close()
            return True
        status, _, _ = plain_http.request((address, port), "GET", http.readiness, {}, _TIMEOUT_SECONDS)
    except OSError:
        return False
    return 200 <= status < 300
