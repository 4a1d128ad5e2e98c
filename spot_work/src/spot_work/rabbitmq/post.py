"""The client's end of a RabbitMQ queue."""

from __future__ import annotations

import logging
import uuid
from functools import partial
from typing import Any, Final

from pika import BasicProperties

from spot_work.errors import QueueFullError
from spot_work.message import Message
from spot_work.pending import Pending
from spot_work.publisher import Post, deliver
from spot_work.queues import Queue
from spot_work.rabbitmq import declare, wire
from spot_work.rabbitmq.declare import Declarations
from spot_work.rabbitmq.link import Fate, Link

log: Final = logging.getLogger("spot_work")

_PREFETCH: Final = 1000
"""Answers under way to us; they cost memory only."""
_GIVE_UP_AFTER: Final = 1e9
"""Seconds: each request has a time of its own, the client goes on."""


class RabbitPost(Post):
    """Publishes requests with confirms, and reads a queue of answers of its own.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``.

    Raises:
        ValueError: the address cannot be read.
    """

    def __init__(self, url: str, queue: Queue, pending: Pending) -> None:
        self._queue = queue
        self._pending = pending
        self._answers = f"{queue.name}.answers.{uuid.uuid4().hex}"
        self._link = Link(url, self._prepare, self._ready, self._failed, _GIVE_UP_AFTER)
        self._link.start()

    def check(self, message: Message) -> None:
        """Do nothing: a broker's limit is its own setting, and far away."""

    def send(self, identity: str) -> None:
        """Send a request; one that finds no connection goes out with the next."""
        self._link.call(partial(self._send, identity))

    def withdraw(self, identity: str) -> None:
        """Tell all workers."""
        self._link.call(
            lambda _: self._link.publish("", identity.encode(), exchange=declare.withdrawn(self._queue))
        )

    def close(self) -> None:
        """Delete the queue of answers, and close."""
        self._link.call(lambda channel: channel.queue_delete(self._answers))
        self._link.close()

    def _prepare(self, channel: Any) -> Declarations:
        yield from declare.requests(channel, self._queue)
        yield from declare.answers(channel, self._answers)
        yield partial(channel.basic_qos, prefetch_count=_PREFETCH)
        # Acknowledged one by one: what was on its way when the connection broke comes again.
        yield partial(channel.basic_consume, self._answers, self._answered)

    def _ready(self) -> None:
        for identity in self._pending.unkept():
            self.send(identity)

    def _send(self, identity: str, channel: Any) -> None:
        one = self._pending.get(identity)
        if one is None or one.via is channel:
            return
        message, one.via = one.addressed(self._answers), channel
        sent = partial(self._sent, identity)
        self._link.publish(self._queue.name, message.body, wire.properties(message), sent)

    def _sent(self, identity: str, fate: Fate) -> None:
        if fate is Fate.REFUSED:
            full = QueueFullError(f"{self._queue.name}: full at {self._queue.most} requests")
            self._pending.settle(identity, full)
        elif fate is Fate.KEPT and (one := self._pending.get(identity)) is not None:
            one.is_kept = True

    def _answered(self, channel: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        deliver(self._pending, self._queue.name, wire.read(body, properties))

    def _failed(self, error: Exception) -> None:
        log.error("%s", error)
        self._pending.fail(error)
