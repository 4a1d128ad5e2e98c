"""Reads the state of RabbitMQ queues from the broker's management API."""

from __future__ import annotations

import base64
import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.core.queues import history as queue_history
from lambdas.core.queues import management_api
from lambdas.core.queues.history import QueueHistory
from lambdas.core.queues.management_api import ManagementApi

_MAX_RESPONSE_BYTES: Final = 1_000_000
_DENIED: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class RabbitMqReader:
    """Reads RabbitMQ queues; caches the URLs from Secrets Manager until a broker denies access.

    ``secrets`` is the client of Secrets Manager. ``tls`` verifies the broker's certificate, by default with
    the system's authorities.
    """

    secrets: Any
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    _urls: dict[str, str] = field(default_factory=dict)

    def observe(
        self, queue: WatchedQueue, history: QueueHistory, now: float, timeout: float
    ) -> tuple[QueueState | None, QueueHistory]:
        """Return the queue's state; raise ``ValueError``, or errors of the network and AWS."""
        ends_at = time.monotonic() + timeout
        was_cached = queue.location in self._urls
        status, body = self._get(queue, ends_at)
        if status in _DENIED:
            # The password may have been rotated.
            self._urls.pop(queue.location, None)
            if was_cached:
                status, body = self._get(queue, ends_at)
        return queue_history.observe(history, management_api.parse_counts(status, body), now)

    def _get(self, queue: WatchedQueue, ends_at: float) -> tuple[int, bytes]:
        if queue.location not in self._urls:
            self._urls[queue.location] = self.secrets.get_secret_value(SecretId=queue.location)[
                "SecretString"
            ]
        try:
            api = management_api.from_broker_url(self._urls[queue.location], queue.management)
        except ValueError:
            del self._urls[queue.location]
            raise
        try:
            return _get(api, queue.name, self.tls, ends_at)
        except (OSError, http.client.HTTPException) as error:
            raise ValueError(f"{api!r} does not respond: {type(error).__name__}: {error}") from None


def reader(client: Callable[[str], Any]) -> RabbitMqReader:
    """Return the reader; ``client`` returns the boto3 client of a service by its name."""
    return RabbitMqReader(client("secretsmanager"))


def _get(api: ManagementApi, queue: str, tls: ssl.SSLContext, ends_at: float) -> tuple[int, bytes]:
    """Return status and body. Redirects are not followed: they would send the password elsewhere."""
    timeout = ends_at - time.monotonic()
    if timeout <= 0:
        raise TimeoutError("no time left for this queue")
    if api.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            api.host, api.port, timeout=timeout, context=tls
        )
    else:
        connection = http.client.HTTPConnection(api.host, api.port, timeout=timeout)
    credentials = base64.b64encode(f"{api.user}:{api.password}".encode()).decode()
    try:
        connection.request("GET", api.queue_path(queue), headers={"Authorization": f"Basic {credentials}"})
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
            raise ValueError(f"management API response above {_MAX_RESPONSE_BYTES} bytes")
        if time.monotonic() > ends_at:
            raise TimeoutError("management API response too slow")
    return b"".join(parts)
