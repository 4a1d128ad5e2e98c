"""Clients: send requests to the workers of a queue and receive their replies."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Self

from spot_work import transports
from spot_work.errors import ExpiredError, LostError, OverloadedError
from spot_work.queue.settings import Queue
from spot_work.queue.url_source import BrokerUrl
from spot_work.request import deadline, message
from spot_work.request import trace as trace_context
from spot_work.request.message import PRIORITIES, Priority
from spot_work.request.pending import PendingRequests
from spot_work.request.trace import TraceCarrier

_EXPIRY_CHECK_SECONDS: Final = 0.25


class Client:
    """Sends requests to a queue and receives the replies; safe to use from many threads.

    A request whose publication was unconfirmed when the connection broke is sent again, marked as such.

    Args:
        url: ``amqp://user:password@host:port/vhost``, ``amqps://…`` or ``sqs://region/account``; or a
            function that returns it, such as one that reads a secret. It is called here, and again, in a
            thread of the client, when the broker refuses the login: after a rotation the client goes on with
            the new one.
        queue: the queue of requests, or its name.

    Raises:
        ValueError: the URL cannot be parsed.
        Exception: what the function raises here. What it raises later is logged, and it is called again.
    """

    def __init__(self, url: BrokerUrl, queue: Queue | str) -> None:
        self._queue = Queue(queue) if isinstance(queue, str) else queue
        self._pending = PendingRequests()
        self._closed = threading.Event()
        self._refused_count = 0
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

    @property
    def refused_count(self) -> int:
        """Number of requests that were not sent because they could not have met their deadline."""
        return self._refused_count

    def submit(
        self,
        value: Any,
        timeout: float = 60.0,
        *,
        priority: Priority = "normal",
        trace: TraceCarrier | None = None,
    ) -> Future[Any]:
        """Send a request and return a future of its reply.

        If the future is cancelled, workers skip the request unless it is already running. On SQS they run it
        all the same, and the reply is dropped.

        Args:
            value: bytes, or anything that can be serialized as JSON.
            timeout: seconds until the request expires: its deadline. No worker begins it later. One that
                cannot meet it is refused: here, by the wait that the newest reply reported, or by a worker.
            priority: workers get requests of ``high`` priority before others, on RabbitMQ 4.3 and later; on
                4.0 to 4.2 two for each other one. Earlier versions and SQS have no priorities.
            trace: W3C trace context, ``{"traceparent": …, "tracestate": …}``. None: that of OpenTelemetry's
                current span, if the program uses it, or of the request that a worker's function runs here.

        Returns:
            A future that raises `WorkError` with the message of the worker's exception, or `ExpiredError`,
            `OverloadedError`, `QueueFullError`, `LostError` or `BrokerRefusedError`; `WorkError` for a
            priority that the broker has not, if it was not connected yet.

        Raises:
            TypeError: the value is neither bytes nor serializable as JSON.
            ValueError: the request is larger than the transport allows, or it has not this priority;
                ``traceparent`` is malformed.
            BrokerRefusedError: the broker has refused this client.
        """
        request_id, now = uuid.uuid4().hex, time.time()
        if priority not in PRIORITIES:
            raise ValueError(f"priority {priority!r}, allowed: {', '.join(PRIORITIES)}")
        carrier = trace_context.current() if trace is None else trace_context.check(trace)
        request = message.request(
            value, request_id, "", now, now + timeout, is_resend=False, priority=priority, trace=carrier
        )
        self._publisher.check(request)
        future: Future[Any] = Future()
        if (late := self._pending.waits.lateness(priority, timeout)) is not None:
            self._refused_count += 1
            retry_after = deadline.retry_after(late)
            text = f"{self._queue.name}: not sent, the queue's wait is too long, retry in {retry_after:.0f} s"
            future.set_exception(OverloadedError(text, retry_after))
            return future
        self._pending.add(request, future, now + timeout)
        future.add_done_callback(partial(self._on_done, request_id))
        self._publisher.send(request_id)
        return future

    def request(
        self,
        value: Any,
        timeout: float = 60.0,
        *,
        priority: Priority = "normal",
        trace: TraceCarrier | None = None,
    ) -> Any:
        """Send a request and return its reply; arguments and errors as for `submit`."""
        return self.submit(value, timeout, priority=priority, trace=trace).result()

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
