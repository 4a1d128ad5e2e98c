"""Clients: send requests to the workers of a queue and receive their replies."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Self

from spot_work import message, transports
from spot_work._renamed import renamed
from spot_work.errors import ExpiredError, LostError
from spot_work.pending import PendingRequests
from spot_work.queues import Queue

_EXPIRY_CHECK_SECONDS: Final = 0.25


@renamed(strays="unmatched_replies")
class Client:
    """Sends requests to a queue and receives the replies; safe to use from many threads.

    A request whose publication was unconfirmed when the connection broke is sent again, marked as such.

    Args:
        url: ``amqp://user:password@host:port/vhost``, ``amqps://…`` or ``sqs://region/account``.
        queue: the queue of requests, or its name.

    Raises:
        ValueError: the URL cannot be parsed.
    """

    def __init__(self, url: str, queue: Queue | str) -> None:
        self._queue = Queue(queue) if isinstance(queue, str) else queue
        self._pending = PendingRequests()
        self._closed = threading.Event()
        self._publisher = transports.publisher(url, self._queue, self._pending)
        threading.Thread(target=self._expire_overdue, name="spot-work-expiry", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def unmatched_replies(self) -> int:
        """Number of replies without an open request: duplicates, and those that arrived too late."""
        return self._pending.unmatched_replies

    def submit(self, value: Any, timeout: float = 60.0) -> Future[Any]:
        """Send a request and return a future of its reply.

        If the future is cancelled, workers skip the request unless it is already running. On SQS they run it
        all the same, and the reply is dropped.

        Args:
            value: bytes, or anything that can be serialized as JSON.
            timeout: seconds until the request expires; workers skip expired requests.

        Returns:
            A future that raises `WorkError` with the message of the worker's exception, or `ExpiredError`,
            `QueueFullError`, `LostError` or `BrokerRefusedError`.

        Raises:
            TypeError: the value is neither bytes nor serializable as JSON.
            ValueError: the request is larger than the transport allows.
            BrokerRefusedError: the broker has refused this client.
        """
        request_id, now = uuid.uuid4().hex, time.time()
        request = message.request(value, request_id, "", now, now + timeout, is_resend=False)
        self._publisher.check(request)
        future: Future[Any] = Future()
        self._pending.add(request, future, now + timeout)
        future.add_done_callback(partial(self._on_done, request_id))
        self._publisher.send(request_id)
        return future

    def request(self, value: Any, timeout: float = 60.0) -> Any:
        """Send a request and return its reply; arguments and errors as for `submit`."""
        return self.submit(value, timeout).result()

    def close(self) -> None:
        """Close the connection; open requests raise `LostError`."""
        self._closed.set()
        self._publisher.close()
        self._pending.fail_all(LostError(f"{self._queue.name}: client closed before the reply arrived"))

    def _on_done(self, request_id: str, future: Future[Any]) -> None:
        if future.cancelled():
            self._pending.discard(request_id)
            self._publisher.cancel(request_id)

    def _expire_overdue(self) -> None:
        """Fail overdue requests, whether the broker is reachable or not."""
        while not self._closed.wait(_EXPIRY_CHECK_SECONDS):
            for request_id in self._pending.overdue(time.time()):
                self._pending.resolve(request_id, ExpiredError(f"{self._queue.name}: no reply in time"))
