"""Clients: send requests to the workers of a queue and receive their replies."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Self

from spot_work import transports
from spot_work.errors import ExpiredError, LostError, OverloadedError
from spot_work.queue import threads
from spot_work.queue.settings import Queue
from spot_work.queue.url_source import BrokerUrl
from spot_work.request import deadline, message
from spot_work.request import trace as trace_context
from spot_work.request.message import PRIORITIES, Priority
from spot_work.request.pending import PendingRequests
from spot_work.request.trace import TraceCarrier

log: Final = logging.getLogger("spot_work")

_EXPIRY_CHECK_SECONDS: Final = 0.25
_MAX_TIMEOUT_SECONDS: Final = 1e9


class ReplyFuture(Future[Any]):
    """A future of a reply. Its callbacks may send requests and wait: they have a thread of their own."""

    def __init__(self, callbacks: Executor, process: int) -> None:
        super().__init__()
        self._callbacks = callbacks
        self._process = process

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """See `concurrent.futures.Future`; the callbacks of a client run one after another."""
        super().add_done_callback(lambda _: self._callbacks.submit(_call, fn, self))

    def result(self, timeout: float | None = None) -> Any:
        """See `concurrent.futures.Future`; raises ``RuntimeError`` in a forked process."""
        _check_process(self._process, self.done())
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `concurrent.futures.Future`; raises ``RuntimeError`` in a forked process."""
        _check_process(self._process, self.done())
        return super().exception(timeout)


def _call(callback: Callable[[Future[Any]], object], future: Future[Any]) -> None:
    try:
        callback(future)
    except BaseException:
        log.exception("callback of a reply")


def _check_process(process: int, is_done: bool = False) -> None:
    """Raise ``RuntimeError`` in a forked process: it has neither the threads nor the connection."""
    if os.getpid() != process and not is_done:
        raise RuntimeError(f"this client is of process {process}, which forked this one; make one here")


class Client:
    """Sends requests to a queue and receives the replies; safe to use from many threads.

    It belongs to the process that made it: in a forked one its calls raise ``RuntimeError``.
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
        self.refused_count = 0
        """Number of requests that were not sent because they could not have met their deadline."""
        self._process = os.getpid()
        self._callbacks = ThreadPoolExecutor(1, "spot-work-callbacks")
        self._publisher = transports.publisher(url, self._queue, self._pending)
        threads.start("spot-work-expiry", self._expire_overdue, self._pending.fail_all)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def unmatched_replies(self) -> int:
        """Number of replies without an open request: duplicates, and those that arrived too late."""
        return self._pending.unmatched_replies

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
                ``traceparent`` is malformed; the timeout is not a number of seconds.
            BrokerRefusedError: the broker has refused this client.
            RuntimeError: this process was forked after the client was made.
        """
        _check_process(self._process)
        if not timeout < _MAX_TIMEOUT_SECONDS:  # also if it is not a number
            raise ValueError(f"timeout must be less than {_MAX_TIMEOUT_SECONDS:g} seconds, not {timeout}")
        request_id, now = uuid.uuid4().hex, time.time()
        if priority not in PRIORITIES:
            raise ValueError(f"priority must be {' or '.join(PRIORITIES)}, not {priority!r}")
        carrier = trace_context.current() if trace is None else trace_context.check(trace)
        request = message.request(
            value, request_id, "", now, now + timeout, is_resend=False, priority=priority, trace=carrier
        )
        self._publisher.check(request)
        future = ReplyFuture(self._callbacks, self._process)
        is_only = self._pending.is_empty
        if (late := self._pending.waits.lateness(priority, timeout, is_only=is_only)) is not None:
            self.refused_count += 1
            retry_after = deadline.retry_after(late)
            text = f"{self._queue.name}: not sent, the queue's wait is too long, retry in {retry_after:.0f} s"
            future.set_exception(OverloadedError(text, retry_after))
            return future
        self._pending.add(request, future, timeout)
        Future.add_done_callback(future, partial(self._on_done, request_id))  # at once, in any thread
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
        """Close the connection; open requests raise `LostError`. Does nothing in a forked process."""
        if os.getpid() != self._process:
            return
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
            for request_id in self._pending.overdue(time.monotonic()):
                self._pending.resolve(request_id, ExpiredError(f"{self._queue.name}: no reply in time"))
