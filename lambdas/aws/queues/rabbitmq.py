"""Reads the state of RabbitMQ queues from the broker's management API."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues import management_client
from lambdas.core.queues import history as queue_history
from lambdas.core.queues import management_api
from lambdas.core.queues.history import QueueHistory

_DENIED: Final = (401, 403)
_URL_SECONDS: Final = 300.0
"""A secret is read again after this time: it may name another broker, while the one before still answers."""


@dataclass(frozen=True, slots=True)
class RabbitMqReader:
    """Reads RabbitMQ queues; caches the URLs from Secrets Manager while their brokers answer.

    ``secrets`` is the client of Secrets Manager. ``tls`` verifies the broker's certificate, by default with
    the system's authorities.
    """

    secrets: Any
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    _urls: dict[str, tuple[float, str]] = field(default_factory=dict)

    def observe(
        self, queue: WatchedQueue, history: QueueHistory, now: float, timeout: float
    ) -> tuple[QueueState | None, QueueHistory]:
        """Return the queue's state; raise ``ValueError``, or errors of the network and AWS."""
        ends_at = time.monotonic() + timeout
        read_at, url = self._urls.pop(queue.location, (-_URL_SECONDS, ""))
        is_cached = abs(now - read_at) < _URL_SECONDS
        status, body = self._get(queue, url, ends_at) if is_cached else (_DENIED[0], b"")
        if status in _DENIED:
            # The password may have been rotated.
            read_at, url = now, self.secrets.get_secret_value(SecretId=queue.location)["SecretString"]
            status, body = self._get(queue, url, ends_at)
        if status not in _DENIED:
            self._urls[queue.location] = read_at, url
        return queue_history.observe(history, management_api.parse_counts(status, body), now)

    def _get(self, queue: WatchedQueue, url: str, ends_at: float) -> tuple[int, bytes]:
        api = management_api.from_broker_url(url, queue.management)
        try:
            return management_client.call(api, api.queue_path(queue.name), self.tls, ends_at)
        except (OSError, http.client.HTTPException) as error:
            raise ValueError(f"{api!r} does not respond: {type(error).__name__}: {error}") from None


def reader(client: Callable[[str], Any]) -> RabbitMqReader:
    """Return the reader; ``client`` returns the boto3 client of a service by its name."""
    return RabbitMqReader(client("secretsmanager"))
