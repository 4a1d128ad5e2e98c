"""How a queue of RabbitMQ stands, from the broker's management API."""

from __future__ import annotations

import base64
import http.client
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.registry.queue_state import Backlog
from contracts.watched_queue import WatchedQueue
from lambdas.core.queues import history as queue_history
from lambdas.core.queues import management_api
from lambdas.core.queues.history import QueueHistory
from lambdas.core.queues.management_api import ManagementApi

_MOST_BYTES: Final = 1_000_000
_REFUSED: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class RabbitMq:
    """Reads queues of RabbitMQ; keeps what the secrets said until a broker refuses it.

    ``secrets`` is the client of Secrets Manager. ``tls`` verifies the broker: by the machine's certificates,
    where nobody says otherwise.
    """

    secrets: Any
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    _urls: dict[str, str] = field(default_factory=dict)

    def look(
        self, queue: WatchedQueue, past: QueueHistory, at: float, seconds: float
    ) -> tuple[Backlog | None, QueueHistory]:
        """Return how a queue stands; raise ``ValueError`` or what the network and AWS raise."""
        ends_at = time.monotonic() + seconds
        was_known = queue.place in self._urls
        status, body = self._ask(queue, ends_at)
        if status in _REFUSED:
            # The password may have been changed since.
            self._urls.pop(queue.place, None)
            if was_known:
                status, body = self._ask(queue, ends_at)
        return queue_history.look(past, management_api.counts(status, body), at)

    def _ask(self, queue: WatchedQueue, ends_at: float) -> tuple[int, bytes]:
        if queue.place not in self._urls:
            self._urls[queue.place] = self.secrets.get_secret_value(SecretId=queue.place)["SecretString"]
        try:
            api = management_api.of_broker(self._urls[queue.place], queue.management)
        except ValueError:
            del self._urls[queue.place]
            raise
        try:
            return _get(api, queue.name, self.tls, ends_at)
        except (OSError, http.client.HTTPException) as error:
            raise ValueError(f"{api!r} does not answer: {type(error).__name__}: {error}") from None


def reader(client: Callable[[str], Any]) -> RabbitMq:
    """Return the reader; ``client`` returns the boto3 client of a service by its name."""
    return RabbitMq(client("secretsmanager"))


def _get(api: ManagementApi, queue: str, tls: ssl.SSLContext, ends_at: float) -> tuple[int, bytes]:
    """Return status and body. Nothing is redirected: the password goes to nobody else."""
    seconds = ends_at - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("no time is left")
    if api.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            api.host, api.port, timeout=seconds, context=tls
        )
    else:
        connection = http.client.HTTPConnection(api.host, api.port, timeout=seconds)
    known = base64.b64encode(f"{api.user}:{api.password}".encode()).decode()
    try:
        connection.request("GET", api.queue(queue), headers={"Authorization": f"Basic {known}"})
        answer = connection.getresponse()
        return answer.status, _read(answer, ends_at)
    finally:
        connection.close()


def _read(answer: http.client.HTTPResponse, ends_at: float) -> bytes:
    """Read the body; the socket's timeout is for each packet, and some come one by one."""
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(65_536):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise ValueError(f"the management API answers with more than {_MOST_BYTES} bytes")
        if time.monotonic() > ends_at:
            raise TimeoutError("the answer came too slowly")
    return b"".join(parts)
