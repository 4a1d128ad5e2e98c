"""The worker's side of a RabbitMQ queue."""

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
from spot_work.consumer import Ack, Delivery, RequestConsumer
from spot_work.queues import Queue
from spot_work.rabbitmq import declare, wire
from spot_work.rabbitmq.declare import Declarations
from spot_work.rabbitmq.link import Link, PublishOutcome

log: Final = logging.getLogger("spot_work")

_MAX_CANCELLED_IDS: Final = 10_000
"""Cancelled requests that a worker remembers."""


class _DeliveryTag(NamedTuple):
    """Identifies a delivery to the broker; valid only on its channel."""

    channel: Any
    tag: int


class RabbitMQConsumer(RequestConsumer):
    """Consumes a queue of requests, with at most ``prefetch`` unacknowledged requests.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``.
        prefetch: maximum unacknowledged requests. RabbitMQ's delivery acknowledgement timeout, 30 minutes,
            applies to each.
        max_outage_seconds: time without a connection after which `receive` raises.

    Raises:
        ValueError: the URL cannot be parsed.
    """

    def __init__(self, url: str, queue_: Queue, prefetch: int, max_outage_seconds: float = 900.0) -> None:
        self._queue = queue_
        self._prefetch = prefetch
        self._prefetched: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._cancelled_ids: OrderedDict[str, None] = OrderedDict()
        self._unconfirmed_acks = 0
        self._acks_changed = threading.Condition()
        self._failure: Exception | None = None
        self._consumer_tag = ""
        self._is_stopped = False
        self.is_connected = threading.Event()
        """Set once requests can be delivered."""
        self._link = Link(url, self._prepare, self._on_ready, self._on_failure, max_outage_seconds)
        self._link.start()

    def receive(self, timeout: float) -> Delivery | None:
        """Return the next request that is neither expired nor cancelled."""
        end = time.monotonic() + timeout
        while True:
            try:
                delivery = self._prefetched.get(timeout=max(end - time.monotonic(), 0.0))
            except queue.Empty:
                return None
            if self._failure is not None:
                raise self._failure
            if delivery is not None and delivery.handle.channel.is_open and not self._ack_obsolete(delivery):
                return delivery

    def ack(self, acks: Sequence[Ack]) -> None:
        """Publish replies, and acknowledge each request once the broker has confirmed its reply."""
        with self._acks_changed:
            self._unconfirmed_acks += len(acks)
        self._link.call(partial(self._publish_replies, acks), or_else=partial(self._count, len(acks)))

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        """Reject requests with requeue, so that the broker delivers them to other workers."""
        for delivery in deliveries:
            self._link.call(partial(self._reject, delivery, requeue=True))

    def dead_letter(self, delivery: Delivery) -> None:
        """Reject a request without requeue, so that the broker dead-letters it."""
        self._link.call(partial(self._reject, delivery, requeue=False))

    def stop(self) -> None:
        """Cancel the consumer and requeue the prefetched requests."""
        self._is_stopped = True
        self._link.call(lambda channel: channel.basic_cancel(self._consumer_tag))
        self._requeue_prefetched()

    def close(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for the confirmation of all replies, then close."""
        with self._acks_changed:
            self._acks_changed.wait_for(lambda: self._unconfirmed_acks <= 0, timeout)
        self._requeue_prefetched()
        self._link.close()

    def _requeue_prefetched(self) -> None:
        deliveries = []
        while not self._prefetched.empty():
            if (delivery := self._prefetched.get()) is not None:
                deliveries.append(delivery)
        self.requeue(deliveries)

    def _ack_obsolete(self, delivery: Delivery) -> bool:
        """Acknowledge an expired or cancelled request without running it; return whether it is one."""
        if not delivery.request.has_expired and delivery.request.id not in self._cancelled_ids:
            return False
        self._link.call(partial(_ack, delivery))
        return True

    def _prepare(self, channel: Any) -> Declarations:
        yield from declare.request_queue(channel, self._queue)
        yield partial(channel.queue_declare, "", exclusive=True, auto_delete=True)
        # The queue name "" is the one that this channel declared last.
        yield partial(channel.queue_bind, "", declare.cancellation_exchange(self._queue))
        yield partial(channel.basic_consume, "", self._on_cancellation, auto_ack=True)
        yield partial(channel.basic_qos, prefetch_count=self._prefetch)
        if not self._is_stopped:
            yield partial(self._consume, channel)

    def _consume(self, channel: Any, callback: Any) -> None:
        self._consumer_tag = channel.basic_consume(self._queue.name, self._on_request, callback=callback)

    def _on_ready(self) -> None:
        self.is_connected.set()

    def _on_failure(self, error: Exception) -> None:
        self._failure = error
        self._prefetched.put(None)

    def _on_cancellation(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._cancelled_ids[body.decode(errors="replace")] = None
        if len(self._cancelled_ids) > _MAX_CANCELLED_IDS:
            self._cancelled_ids.popitem(last=False)

    def _on_request(self, channel: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        tag = method.delivery_tag
        try:
            delivery_count = wire.delivery_count(properties, redelivered=method.redelivered)
            request = message.read_request(wire.read(body, properties), delivery_count, time.time())
        except ValueError as error:
            log.error("%s: malformed request: %s", self._queue.name, error)
            channel.basic_reject(tag, requeue=False)
            return
        if self._is_stopped:
            channel.basic_reject(tag, requeue=True)
        else:
            self._prefetched.put(Delivery(request, _DeliveryTag(channel, tag)))

    def _publish_replies(self, acks: Sequence[Ack], channel: Any) -> None:
        for ack in acks:
            delivery, reply = ack.delivery, ack.reply
            if reply is None or not delivery.request.reply_to or not delivery.handle.channel.is_open:
                self._on_outcome(delivery, PublishOutcome.CONFIRMED)
            else:
                on_outcome = partial(self._on_outcome, delivery)
                self._link.publish(delivery.request.reply_to, reply.body, wire.properties(reply), on_outcome)

    def _on_outcome(self, delivery: Delivery, outcome: PublishOutcome) -> None:
        if outcome is PublishOutcome.CONFIRMED:
            _ack(delivery)
        elif outcome is PublishOutcome.REJECTED:
            self._reject(delivery, requeue=True)
        self._count(1)

    def _count(self, acks: int) -> None:
        with self._acks_changed:
            self._unconfirmed_acks -= acks
            self._acks_changed.notify_all()

    def _reject(self, delivery: Delivery, _: Any = None, *, requeue: bool) -> None:
        channel, tag = delivery.handle
        if channel.is_open:  # the broker has requeued the deliveries of a closed channel
            channel.basic_reject(tag, requeue=requeue)


def _ack(delivery: Delivery, _: Any = None) -> None:
    channel, tag = delivery.handle
    if channel.is_open:
        channel.basic_ack(tag)
