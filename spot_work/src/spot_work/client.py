"""Ask workers, and wait for what they answer."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Self

from spot_work import message, transports
from spot_work.errors import ExpiredError, LostError
from spot_work.pending import Pending
from spot_work.queues import Queue

_TIDY_EVERY: Final = 0.25


class Client:
    """Sends requests to a queue and brings the answers; safe to use from many threads.

    A request that the broker may not have got when the connection broke is sent again, and says so.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``; ``sqs://region/account``.
        queue: of the requests, or its name.

    Raises:
        ValueError: the address cannot be read.
    """

    def __init__(self, url: str, queue: Queue | str) -> None:
        self._queue = Queue(queue) if isinstance(queue, str) else queue
        self._pending = Pending()
        self._closed = threading.Event()
        self._post = transports.post(url, self._queue, self._pending)
        threading.Thread(target=self._tidy, name="spot-work-tidy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def strays(self) -> int:
        """Answers that nobody waited for: second ones, and those that came too late."""
        return self._pending.strays

    def submit(self, value: Any, timeout: float = 60.0) -> Future[Any]:
        """Send a request; the future gets the answer.

        Cancelling the future tells the workers, who leave out what they have not begun; on SQS there is no
        way to tell them, and the answer is dropped.

        Args:
            value: bytes, or what JSON knows.
            timeout: in seconds; workers leave out what is older when they come to it.

        Returns:
            A future that raises `WorkError`: what the worker's function raised; `ExpiredError`,
            `QueueFullError`, `LostError` or `BrokerRefusedError`.

        Raises:
            TypeError: the value is neither bytes nor anything that JSON knows.
            ValueError: it is larger than the transport carries.
            BrokerRefusedError: the broker has refused this client.
        """
        identity, now = uuid.uuid4().hex, time.time()
        one = message.request(value, identity, "", now, now + timeout, again=False)
        self._post.check(one)
        answer: Future[Any] = Future()
        self._pending.add(one, answer, now + timeout)
        answer.add_done_callback(partial(self._forget, identity))
        self._post.send(identity)
        return answer

    def request(self, value: Any, timeout: float = 60.0) -> Any:
        """Send a request and return the answer; arguments and errors as in `submit`."""
        return self.submit(value, timeout).result()

    def close(self) -> None:
        """Close; requests without an answer raise `LostError`."""
        self._closed.set()
        self._post.close()
        self._pending.fail(LostError(f"{self._queue.name}: the client was closed before the answer came"))

    def _forget(self, identity: str, answer: Future[Any]) -> None:
        if answer.cancelled():
            self._pending.forget(identity)
            self._post.withdraw(identity)

    def _tidy(self) -> None:
        """End what nobody has answered in time, whether there is a broker or not."""
        while not self._closed.wait(_TIDY_EVERY):
            for identity in self._pending.late(time.time()):
                self._pending.settle(identity, ExpiredError(f"{self._queue.name}: no answer in time"))
