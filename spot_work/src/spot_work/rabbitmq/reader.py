"""The worker's end of a queue: takes requests, gives answers, hands back what it will not run."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from pika import BasicProperties

from spot_work import message
from spot_work.queue_reader import Said, Source, Taken
from spot_work.queues import Queue
from spot_work.rabbitmq import declare, wire
from spot_work.rabbitmq.declare import Declarations
from spot_work.rabbitmq.link import Fate, Link

log: Final = logging.getLogger("spot_work")

_WITHDRAWN_KEPT: Final = 10_000
"""Of the requests that nobody waits for any more so many are remembered."""


class _Delivery(NamedTuple):
    """How the broker knows a request."""

    channel: Any
    tag: int


class RabbitSource(Source):
    """Takes requests from a queue, at most ``prefetch`` at a time, until it is told to stop.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``.
        prefetch: requests that are here and not settled. RabbitMQ's timeout for an acknowledgement, 30
            minutes, runs for all of them.
        give_up_after: seconds in a row without the broker after which `take` raises.

    Raises:
        ValueError: the address cannot be read.
    """

    def __init__(self, url: str, queue_: Queue, prefetch: int, give_up_after: float = 900.0) -> None:
        self._queue = queue_
        self._prefetch = prefetch
        self._arrived: queue.SimpleQueue[Taken | None] = queue.SimpleQueue()
        self._withdrawn: OrderedDict[str, None] = OrderedDict()
        self._unsaid = 0
        self._said = threading.Condition()
        self._failure: Exception | None = None
        self._consumer = ""
        self._stopped = False
        self.is_connected = threading.Event()
        """Set once requests could come."""
        self._link = Link(url, self._prepare, self._ready, self._failed, give_up_after)
        self._link.start()

    def take(self, seconds: float) -> Taken | None:
        """Return the next request that somebody still waits for."""
        end = time.monotonic() + seconds
        while True:
            try:
                taken = self._arrived.get(timeout=max(end - time.monotonic(), 0.0))
            except queue.Empty:
                return None
            if self._failure is not None:
                raise self._failure
            if taken is not None and taken.delivery.channel.is_open and not self._is_idle(taken):
                return taken

    def say(self, answers: Sequence[Said]) -> None:
        """Send answers; a request is acknowledged once the broker has confirmed its answer."""
        with self._said:
            self._unsaid += len(answers)
        self._link.call(partial(self._say, answers), or_else=partial(self._count, len(answers)))

    def hand_back(self, taken: Sequence[Taken]) -> None:
        """Reject requests, so that the broker gives them to others."""
        for one in taken:
            self._link.call(partial(self._reject, one, requeue=True))

    def bury(self, taken: Taken) -> None:
        """Reject a request, so that the broker moves it to the queue of the dead."""
        self._link.call(partial(self._reject, taken, requeue=False))

    def stop(self) -> None:
        """Stop to consume, and reject what has come and was not taken."""
        self._stopped = True
        self._link.call(lambda channel: channel.basic_cancel(self._consumer))
        self._clear()

    def close(self, seconds: float) -> None:
        """Wait until all that was said is confirmed, so many seconds at most, and close."""
        with self._said:
            self._said.wait_for(lambda: self._unsaid <= 0, seconds)
        self._clear()
        self._link.close()

    def _clear(self) -> None:
        left = []
        while not self._arrived.empty():
            if (one := self._arrived.get()) is not None:
                left.append(one)
        self.hand_back(left)

    def _is_idle(self, taken: Taken) -> bool:
        """Tell whether nobody waits for a request any more; it is then gone."""
        if not taken.request.has_expired and taken.request.id not in self._withdrawn:
            return False
        self._link.call(partial(_ack, taken))
        return True

    def _prepare(self, channel: Any) -> Declarations:
        yield from declare.requests(channel, self._queue)
        yield partial(channel.queue_declare, "", exclusive=True, auto_delete=True)
        # The name "" is the queue that this channel has declared last.
        yield partial(channel.queue_bind, "", declare.withdrawn(self._queue))
        yield partial(channel.basic_consume, "", self._on_withdrawn, auto_ack=True)
        yield partial(channel.basic_qos, prefetch_count=self._prefetch)
        if not self._stopped:
            yield partial(self._consume, channel)

    def _consume(self, channel: Any, callback: Any) -> None:
        self._consumer = channel.basic_consume(self._queue.name, self._on_request, callback=callback)

    def _ready(self) -> None:
        self.is_connected.set()

    def _failed(self, error: Exception) -> None:
        self._failure = error
        self._arrived.put(None)

    def _on_withdrawn(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._withdrawn[body.decode(errors="replace")] = None
        if len(self._withdrawn) > _WITHDRAWN_KEPT:
            self._withdrawn.popitem(last=False)

    def _on_request(self, channel: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        tag = method.delivery_tag
        try:
            tries = wire.tries(properties, redelivered=method.redelivered)
            request = message.read_request(wire.read(body, properties), tries, time.time())
        except ValueError as error:
            log.error("%s: a request cannot be read: %s", self._queue.name, error)
            channel.basic_reject(tag, requeue=False)
            return
        if self._stopped:
            channel.basic_reject(tag, requeue=True)
        else:
            self._arrived.put(Taken(request, _Delivery(channel, tag)))

    def _say(self, answers: Sequence[Said], channel: Any) -> None:
        for said in answers:
            taken, answer = said.taken, said.answer
            if answer is None or not taken.request.reply_to or not taken.delivery.channel.is_open:
                self._settled(taken, Fate.KEPT)
            else:
                settled = partial(self._settled, taken)
                self._link.publish(taken.request.reply_to, answer.body, wire.properties(answer), settled)

    def _settled(self, taken: Taken, fate: Fate) -> None:
        if fate is Fate.KEPT:
            _ack(taken)
        elif fate is Fate.REFUSED:
            self._reject(taken, requeue=True)
        self._count(1)

    def _count(self, settled: int) -> None:
        with self._said:
            self._unsaid -= settled
            self._said.notify_all()

    def _reject(self, taken: Taken, _: Any = None, *, requeue: bool) -> None:
        channel, tag = taken.delivery
        if channel.is_open:  # else it is back in the queue already
            channel.basic_reject(tag, requeue=requeue)


def _ack(taken: Taken, _: Any = None) -> None:
    channel, tag = taken.delivery
    if channel.is_open:
        channel.basic_ack(tag)
