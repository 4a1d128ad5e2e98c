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
            return management_client.call(api, api.queue_path(queue.name), self.tls, ends_at)
        except (OSError, http.client.HTTPException) as error:
            raise ValueError(f"{api!r} does not respond: {type(error).__name__}: {error}") from None


def reader(client: Callable[[str], Any]) -> RabbitMqReader:
    """Return the reader; ``client`` returns the boto3 client of a service by its name."""
    return RabbitMqReader(client("secretsmanager"))
