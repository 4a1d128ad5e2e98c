"""The worker's side of a RabbitMQ queue."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

from pika import BasicProperties

from spot_work.queue.consumer import Ack, Delivery, RequestConsumer
from spot_work.queue.settings import Queue
from spot_work.queue.url_source import BrokerUrl, UrlSource
from spot_work.rabbitmq import declare, wire
from spot_work.rabbitmq.declare import Declarations
from spot_work.rabbitmq.link import Link, PublishOutcome
from spot_work.rabbitmq.outbox import Outbox, OutgoingMessage
from spot_work.rabbitmq.settled import SettledRequests
from spot_work.rabbitmq.window import Window
from spot_work.request import message
from spot_work.request.message import Message, Request

log: Final = logging.getLogger("spot_work")

_MAX_CANCELLED_IDS: Final = 10_000
"""Cancelled requests that a worker remembers."""
_REJECTED_SECONDS: Final = 10.0
"""Time for which a reply to a request without a deadline is sent again to a queue that rejects it."""
_UNCONFIRMED_SECONDS: Final = 0.5
"""Age at which an unconfirmed reply no longer counts towards the prefetched requests."""


class _DeliveryTag(NamedTuple):
    """Identifies a delivery to the broker; valid only on its channel."""

    channel: Any
    tag: int


class RabbitMQConsumer(RequestConsumer):
    """Consumes a queue of requests, with at most ``prefetch`` unacknowledged requests.

    Requests whose replies the broker does not take at present do not count towards ``prefetch``, up to the
    bounds of `Outbox`; there the consumer stops taking requests.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``; or what returns it.
        prefetch: maximum unacknowledged requests.
        max_outage_seconds: time without a connection after which `receive` raises.
        relay: as for `Link`.

    Raises:
        ValueError: the URL cannot be parsed.
    """

    max_batches_ahead = 127

    def __init__(
        self,
        url: BrokerUrl | UrlSource,
        queue_: Queue,
        prefetch: int,
        max_outage_seconds: float = 900.0,
        relay: Callable[[str], int] | None = None,
    ) -> None:
        self._queue = queue_
        source = UrlSource.of(url)
        self._is_declared = declare.is_declared(source.url)
        self._prefetched: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._cancelled_ids: OrderedDict[str, None] = OrderedDict()
        self._failure: Exception | None = None
        self._settled = SettledRequests()
        self._delayed: dict[int, Delivery] = {}
        self._unsettled: dict[int, None] = {}
        """Tags of the present channel's deliveries, oldest first; as `_acked`, of the link's thread."""
        self._acked: list[int] = []
        """Those of them to acknowledge with the next."""
        self._stopped = threading.Event()
        self.stopped_reason = ""
        self.is_connected = threading.Event()
        self._link = Link(
            source,
            self._prepare,
            self._on_ready,
            self._on_failure,
            max_outage_seconds,
            relay=relay,
            after_calls=self._send_acks,
        )
        self._window = Window(queue_.name, prefetch, self._on_request)
        self._outbox = Outbox(source, self._declare, self._on_failure, max_outage_seconds, relay)
        self._link.start()

    @property
    def ack_timeout_seconds(self) -> float | None:
        return self._link.ack_timeout_seconds

    @property
    def waiting_count(self) -> int:
        return self._prefetched.qsize()

    @property
    def held_replies(self) -> int:
        return self._outbox.count

    def receive(self, timeout: float) -> Delivery | None:
        end = time.monotonic() + timeout
        while True:
            if self._is_full():
                self._stopped.wait(max(end - time.monotonic(), 0.0))
                self._raise_failure()
                return None
            try:
                delivery = self._prefetched.get(timeout=max(end - time.monotonic(), 0.0))
            except queue.Empty:
                self._extend_window()
                return None
            self._raise_failure()
            if delivery is not None and delivery.handle.channel.is_open and self._begin(delivery):
                return delivery

    def set_prefetch(self, count: int) -> None:
        if count != self._window.prefetch:
            self._window.prefetch = count
            self._link.call(self._window.resize)

    def hand_back(self) -> None:
        """Cancel the consumers until `set_prefetch`, and requeue the prefetched requests.

        Brokers before RabbitMQ 4.3 count what comes back as a failure (`_return`): what has had more than a
        quarter of its deliveries, or may be delivered only once, stays.
        """
        self.set_prefetch(0)
        if (limit := self._queue.max_deliveries) > 1:
            self._requeue_prefetched(max_count=max(limit // 4, 1))

    def ack(self, acks: Sequence[Ack]) -> None:
        replies = []
        for ack in acks:
            delivery, reply = ack.delivery, ack.reply
            if reply is None or not delivery.request.reply_to:
                self._settle(delivery)
            else:
                replies.append(self._outgoing_reply(delivery, reply))
        if replies:
            self._outbox.add(replies)

    def requeue(self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0) -> None:
        for delivery in map(self._settled.end, deliveries):
            if delay_seconds and not self._stopped.is_set():
                self._link.call(partial(self._reject_later, delivery, delay_seconds))
            else:
                self._link.call(partial(self._return, delivery, has_failed=True))

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        on_outcome = partial(self._on_dead_letter, delivery)
        self._outbox.add([self._outgoing_dead_letter(delivery, reason, on_outcome)])

    def stop(self) -> None:
        self._stopped.set()
        self.set_prefetch(0)
        self._link.call(self._reject_delayed)
        self._requeue_prefetched()

    def close(self, timeout: float) -> None:
        if not self._outbox.wait_empty(timeout):
            log.warning("%s: %d replies not confirmed", self._queue.name, self._outbox.count)
        self._requeue_prefetched()
        self._link.close()
        self._outbox.close()

    def _is_full(self) -> bool:
        reason = self._outbox.full_reason
        if reason and not self.stopped_reason:
            log.warning("%s: no more requests are taken: %s", self._queue.name, reason)
        elif self.stopped_reason and not reason:
            log.info("%s: requests are taken again", self._queue.name)
        self.stopped_reason = reason
        return bool(reason)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _extend_window(self) -> None:
        """Prefetch beyond the limit while the requests of the present one wait for the broker."""
        if self._outbox.oldest_seconds > _UNCONFIRMED_SECONDS and not self._stopped.is_set():
            self._link.call(partial(self._window.extend, self._outbox.count))

    def _requeue_prefetched(self, *, max_count: float = math.inf) -> None:
        """Return prefetched requests to the queue, without counting it as a failure where the broker can."""
        stay = []
        for _ in range(self._prefetched.qsize()):
            try:
                delivery = self._prefetched.get_nowait()
            except queue.Empty:
                break
            if delivery is None or delivery.request.delivery_count > max_count:
                stay.append(delivery)
            else:
                self._link.call(partial(self._return, delivery, has_failed=False))
        for delivery in stay:
            self._prefetched.put(delivery)

    def _begin(self, delivery: Delivery) -> bool:
        """Return whether to run a request; acknowledge one that is cancelled or was answered here."""
        id_ = delivery.request.id if delivery.request.sent_at is not None else None  # other ids may repeat
        if id_ in self._cancelled_ids or self._settled.has(delivery):
            self._settle(delivery)
            return False
        return self._settled.begin(delivery)

    def _declare(self, channel: Any) -> Declarations:
        return declare.request_queue(channel, self._queue, is_declared=self._is_declared)

    def _prepare(self, channel: Any) -> Declarations:
        self._delayed.clear()
        self._unsettled.clear()
        self._acked.clear()
        yield from self._declare(channel)
        yield partial(channel.queue_declare, "", exclusive=True, auto_delete=True)
        # The queue name "" is the one that this channel declared last.
        yield partial(channel.queue_bind, "", declare.cancellation_exchange(self._queue))
        yield partial(channel.basic_consume, "", self._on_cancellation, auto_ack=True)
        if self._window.reset() and not self._stopped.is_set():
            yield partial(self._window.open, channel)

    def _on_ready(self) -> None:
        self._link.call(self._window.resize)  # it may have changed while the link was not ready
        if not self.is_connected.is_set():
            log.info("%s: consumer_timeout unknown, RabbitMQ's default is 30 minutes", self._queue.name)
        self.is_connected.set()

    def _on_failure(self, error: Exception) -> None:
        self._failure = error
        self._prefetched.put(None)

    def _on_cancellation(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._cancelled_ids[body.decode(errors="replace")] = None
        if len(self._cancelled_ids) > _MAX_CANCELLED_IDS:
            self._cancelled_ids.popitem(last=False)

    def _on_request(self, channel: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        self._window.on_delivery(channel)
        self._unsettled[method.delivery_tag] = None
        handle, received = _DeliveryTag(channel, method.delivery_tag), None
        try:
            received = wire.read(body, properties)
            delivery_count = wire.delivery_count(properties, redelivered=method.redelivered)
            request = message.read_request(received, delivery_count)
            self._check_reply_queue(request.reply_to)
        except Exception as error:  # whatever another client may send ends here
            log.error("%s: malformed request: %s", self._queue.name, error)
            received = received or Message(str(properties.correlation_id or ""), body, is_json=False)
            self.dead_letter(Delivery(Request(received.id, None), handle, received), f"malformed: {error}")
            return
        delivery = Delivery(request, handle, received)
        if self._stopped.is_set():
            self._return(delivery, has_failed=False)
        else:
            self._prefetched.put(delivery)

    def _check_reply_queue(self, reply_to: str) -> None:
        """Raise ``ValueError`` for a reply queue that the user may not reach: the broker ends the channel."""
        if self._is_declared and reply_to and not declare.has_reply_exchange(self._queue, reply_to):
            prefix = declare.reply_exchange(self._queue)
            text = f"the reply queue must begin with {prefix}. and be bound to exchange {prefix}, unlike"
            raise ValueError(f"{text} {reply_to!r}")

    def _outgoing_reply(self, delivery: Delivery, reply: Message) -> OutgoingMessage:
        def on_outcome(outcome: PublishOutcome) -> None:
            if outcome is PublishOutcome.IMPOSSIBLE:
                self._on_impossible_reply(delivery, outgoing, self._outbox.refusal(outgoing))
            elif outcome is PublishOutcome.REJECTED and request.deadline is None:
                self._on_impossible_reply(delivery, outgoing, "its queue rejects it")
            else:
                self._settle(delivery)

        request = delivery.request
        is_bound = declare.has_reply_exchange(self._queue, request.reply_to)
        exchange = declare.reply_exchange(self._queue) if is_bound else ""
        end = request.deadline or time.time() + _REJECTED_SECONDS
        outgoing = OutgoingMessage(exchange, request.reply_to, reply, on_outcome, deadline=end)
        return outgoing

    def _on_impossible_reply(self, delivery: Delivery, outgoing: OutgoingMessage, refusal: str) -> None:
        """Dead-letter the request, and reply with an error, which may be impossible as well."""
        reason = f"the reply cannot be sent: {refusal}"
        log.error("%s: request %s: %s", self._queue.name, delivery.request.id, reason)
        error = message.reply(delivery.request, None, f"ValueError: {reason}")
        copy = self._outgoing_dead_letter(delivery, reason, lambda _: None)
        sent = replace(outgoing, message=error, on_outcome=lambda _: self._settle(delivery), sent_on=0)
        self._outbox.add([copy, sent])

    def _outgoing_dead_letter(
        self, delivery: Delivery, reason: str, on_outcome: Callable[[PublishOutcome], None]
    ) -> OutgoingMessage:
        exchange, dead = declare.dead_letter_exchange(self._queue), declare.dead_letter_queue(self._queue)
        return OutgoingMessage(exchange, dead, delivery.received, on_outcome, reason)

    def _on_dead_letter(self, delivery: Delivery, outcome: PublishOutcome) -> None:
        """Acknowledge a request whose copy is stored; the broker dead-letters one of which it takes none."""
        if outcome is PublishOutcome.IMPOSSIBLE:
            newest = self._settled.end(delivery)
            self._link.call(partial(self._return, newest, has_failed=True, requeue=False))
        else:
            self._settle(delivery)

    def _settle(self, delivery: Delivery) -> None:
        """Acknowledge a request; the broker has requeued the requests of a closed channel."""
        newest = self._settled.end(delivery, is_settled=True)
        self._link.call(partial(self._ack, newest))

    def _ack(self, delivery: Delivery, channel: Any) -> None:
        if delivery.handle.channel is channel:
            self._acked.append(delivery.handle.tag)
            self._window.on_settled(channel, self._outbox.count)

    def _send_acks(self, channel: Any) -> None:
        """Send the acknowledgements, the oldest in one: each is an entry of a quorum queue's log."""
        acked, self._acked = set(self._acked), []
        if oldest := list(takewhile(acked.__contains__, self._unsettled)):
            channel.basic_ack(oldest[-1], multiple=True)
        for tag in acked.difference(oldest):
            channel.basic_ack(tag)
        for tag in acked:
            del self._unsettled[tag]

    def _return(self, delivery: Delivery, *_: Any, has_failed: bool, requeue: bool = True) -> None:
        """Requeue a request; as ``nack``, unlike as ``reject``, it does not count as a failure.

        Source: RabbitMQ 4.3, "Negative Acknowledgements"; older brokers count both.
        """
        channel = delivery.handle.channel
        if channel.is_open:
            send = channel.basic_reject if has_failed else channel.basic_nack
            send(delivery.handle.tag, requeue=requeue)
            self._unsettled.pop(delivery.handle.tag, None)
            self._window.on_settled(channel, self._outbox.count)

    def _reject_later(self, delivery: Delivery, seconds: float, _: Any) -> None:
        self._delayed[id(delivery)] = delivery
        self._link.call_later(seconds, partial(self._reject_if_delayed, delivery))

    def _reject_if_delayed(self, delivery: Delivery) -> None:
        if self._delayed.pop(id(delivery), None) is not None:
            self._return(delivery, has_failed=True)

    def _reject_delayed(self, _: Any) -> None:
        for delivery in list(self._delayed.values()):
            self._reject_if_delayed(delivery)
