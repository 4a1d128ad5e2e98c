"""The client's side of a RabbitMQ queue."""

from __future__ import annotations

import logging
import uuid
from functools import partial
from typing import Any, Final

from pika import BasicProperties

from spot_work.errors import QueueFullError
from spot_work.message import Message
from spot_work.pending import PendingRequests
from spot_work.publisher import RequestPublisher, resolve_reply
from spot_work.queues import Queue
from spot_work.rabbitmq import declare, wire
from spot_work.rabbitmq.declare import Declarations
from spot_work.rabbitmq.link import Link, PublishOutcome

log: Final = logging.getLogger("spot_work")

_PREFETCH: Final = 1000
"""Replies in flight to this client; they cost only memory."""
_MAX_OUTAGE_SECONDS: Final = 1e9
"""Unlimited: each request has its own timeout."""


class RabbitMQPublisher(RequestPublisher):
    """Publishes requests with publisher confirms, and consumes its own reply queue.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``.

    Raises:
        ValueError: the URL cannot be parsed.
    """

    def __init__(self, url: str, queue: Queue, pending: PendingRequests) -> None:
        self._queue = queue
        self._pending = pending
        self._reply_queue = f"{queue.name}.answers.{uuid.uuid4().hex}"
        self._link = Link(url, self._prepare, self._on_ready, self._on_failure, _MAX_OUTAGE_SECONDS)
        self._link.start()

    def check(self, message: Message) -> None:
        """Do nothing: the maximum message size is a setting of the broker, and far above usual requests."""

    def send(self, request_id: str) -> None:
        """Publish a request; without a connection it is published after the next one is made."""
        self._link.call(partial(self._send, request_id))

    def cancel(self, request_id: str) -> None:
        """Notify all workers."""
        exchange = declare.cancellation_exchange(self._queue)
        self._link.call(lambda _: self._link.publish("", request_id.encode(), exchange=exchange))

    def close(self) -> None:
        """Delete the reply queue and close the connection."""
        self._link.call(lambda channel: channel.queue_delete(self._reply_queue))
        self._link.close()

    def _prepare(self, channel: Any) -> Declarations:
        yield from declare.request_queue(channel, self._queue)
        yield from declare.reply_queue(channel, self._reply_queue)
        yield partial(channel.basic_qos, prefetch_count=_PREFETCH)
        # Acknowledged one by one: replies in flight when the connection breaks are redelivered.
        yield partial(channel.basic_consume, self._reply_queue, self._on_reply)

    def _on_ready(self) -> None:
        for request_id in self._pending.unconfirmed():
            self.send(request_id)

    def _send(self, request_id: str, channel: Any) -> None:
        request = self._pending.get(request_id)
        if request is None or request.sent_via is channel:
            return
        message, request.sent_via = request.to_message(self._reply_queue), channel
        on_outcome = partial(self._on_outcome, request_id)
        self._link.publish(self._queue.name, message.body, wire.properties(message), on_outcome)

    def _on_outcome(self, request_id: str, outcome: PublishOutcome) -> None:
        if outcome is PublishOutcome.REJECTED:
            full = QueueFullError(f"{self._queue.name}: queue full, maximum length {self._queue.max_length}")
            self._pending.resolve(request_id, full)
        elif outcome is PublishOutcome.CONFIRMED and (request := self._pending.get(request_id)) is not None:
            request.is_confirmed = True

    def _on_reply(self, channel: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        resolve_reply(self._pending, self._queue.name, wire.read(body, properties))

    def _on_failure(self, error: Exception) -> None:
        log.error("%s", error)
        self._pending.fail_all(error)
