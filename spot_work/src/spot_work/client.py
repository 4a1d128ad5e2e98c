"""Ask workers, and wait for what they answer."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from pika import BasicProperties

from spot_work import message
from spot_work.errors import ExpiredError, LostError, QueueFullError, WorkError
from spot_work.link import Fate, Link
from spot_work.queues import Declarations, Queue, declare_answers

log: Final = logging.getLogger("spot_work")

_PREFETCH: Final = 1000
"""Answers under way to us; they cost memory only."""
_TIDY_EVERY: Final = 0.25
_GIVE_UP_AFTER: Final = 1e9
"""Seconds: each request has a time of its own, the client goes on."""


@dataclass
class _Request:
    value: Any
    answer: Future[Any]
    sent: float
    deadline: float
    channel: Any = None
    """The one by which it was sent last."""
    is_kept: bool = False
    """The broker has it."""


class Client:
    """Sends requests to a queue and brings the answers; safe to use from many threads.

    A request that the broker may not have got when the connection broke is sent again, and says so.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``.
        queue: of the requests, or its name.

    Raises:
        ValueError: the address cannot be read.
    """

    def __init__(self, url: str, queue: Queue | str) -> None:
        self._queue = Queue(queue) if isinstance(queue, str) else queue
        self._answers = f"{self._queue.name}.answers.{uuid.uuid4().hex}"
        self._open: dict[str, _Request] = {}
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._closed = threading.Event()
        self.strays = 0
        """Answers that nobody waited for: second ones, and those that came too late."""
        self._link = Link(url, self._prepare, self._ready, self._failed, _GIVE_UP_AFTER)
        self._link.start()
        threading.Thread(target=self._tidy, name="spot-work-tidy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, value: Any, timeout: float = 60.0) -> Future[Any]:
        """Send a request; the future gets the answer.

        Cancelling the future tells the workers, who leave out what they have not begun.

        Args:
            value: bytes, or what JSON knows.
            timeout: in seconds; workers leave out what is older when they come to it.

        Returns:
            A future that raises `WorkError`: what the worker's function raised; `ExpiredError`,
            `QueueFullError`, `LostError` or `BrokerRefusedError`.

        Raises:
            TypeError: the value is neither bytes nor anything that JSON knows.
            BrokerRefusedError: the broker has refused this client.
        """
        identity, now = uuid.uuid4().hex, time.time()
        answer: Future[Any] = Future()
        one = _Request(value, answer, now, now + timeout)
        self._message(identity, one)  # what cannot be sent is refused here
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._open[identity] = one
        answer.add_done_callback(partial(self._forget, identity))
        self._link.call(partial(self._send, identity))
        return answer

    def request(self, value: Any, timeout: float = 60.0) -> Any:
        """Send a request and return the answer; arguments and errors as in `submit`."""
        return self.submit(value, timeout).result()

    def close(self) -> None:
        """Close; requests without an answer raise `LostError`."""
        self._closed.set()
        self._link.call(lambda channel: channel.queue_delete(self._answers))
        self._link.close()
        self._end(LostError(f"{self._queue.name}: the client was closed before the answer came"))

    def _prepare(self, channel: Any) -> Declarations:
        yield from self._queue.declare(channel)
        yield from declare_answers(channel, self._answers)
        yield partial(channel.basic_qos, prefetch_count=_PREFETCH)
        # Acknowledged one by one: what was on its way when the connection broke comes again.
        yield partial(channel.basic_consume, self._answers, self._answered)

    def _ready(self) -> None:
        with self._lock:
            waiting = [identity for identity, one in self._open.items() if not one.is_kept]
        for identity in waiting:
            self._link.call(partial(self._send, identity))

    def _send(self, identity: str, channel: Any) -> None:
        one = self._open.get(identity)
        if one is None or one.channel is channel:
            return
        body, properties = self._message(identity, one)
        one.channel = channel
        self._link.publish(self._queue.name, body, properties, partial(self._sent, identity))

    def _message(self, identity: str, one: _Request) -> tuple[bytes, BasicProperties]:
        return message.request(
            one.value, identity, self._answers, one.sent, one.deadline, again=one.channel is not None
        )

    def _sent(self, identity: str, fate: Fate) -> None:
        if fate is Fate.REFUSED:
            self._settle(identity, QueueFullError(f"{self._queue.name}: full at {self._queue.most} requests"))
        elif fate is Fate.KEPT and (one := self._open.get(identity)) is not None:
            one.is_kept = True

    def _answered(self, channel: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        try:
            answer = message.read_reply(body, properties)
        except ValueError as error:
            log.error("%s: an answer cannot be read: %s", self._queue.name, error)
            return
        failed = WorkError(answer.failed) if answer.failed else None
        self.strays += not self._settle(answer.id, failed, answer.value)

    def _settle(self, identity: str, error: Exception | None, value: Any = None) -> bool:
        """End a request; tell whether it was still open. Whoever takes it out of the table ends it."""
        with self._lock:
            one = self._open.pop(identity, None)
        if one is None or not one.answer.set_running_or_notify_cancel():
            return False
        if error is not None:
            one.answer.set_exception(error)
        else:
            one.answer.set_result(value)
        return True

    def _forget(self, identity: str, answer: Future[Any]) -> None:
        if answer.cancelled():
            with self._lock:
                self._open.pop(identity, None)
            self._link.call(
                lambda _: self._link.publish("", identity.encode(), exchange=self._queue.withdrawn)
            )

    def _tidy(self) -> None:
        """End what nobody has answered in time, whether there is a broker or not."""
        while not self._closed.wait(_TIDY_EVERY):
            now = time.time()
            with self._lock:
                late = [identity for identity, one in self._open.items() if one.deadline < now]
            for identity in late:
                self._settle(identity, ExpiredError(f"{self._queue.name}: no answer in time"))

    def _failed(self, error: Exception) -> None:
        log.error("%s", error)
        self._end(error)

    def _end(self, error: Exception) -> None:
        with self._lock:
            self._failure = self._failure or error
            left = list(self._open)
        for identity in left:
            self._settle(identity, error)
