"""The client's side of a RabbitMQ queue."""

from __future__ import annotations

import logging
import threading
import uuid
from functools import partial
from typing import Any, Final

from pika import BasicProperties

from spot_work.errors import QueueFullError, WorkError
from spot_work.queue.publisher import RequestPublisher, resolve_reply
from spot_work.queue.settings import Queue
from spot_work.queue.url_source import BrokerUrl, UrlSource
from spot_work.rabbitmq import declare, versions, wire
from spot_work.rabbitmq.declare import Declarations
from spot_work.rabbitmq.link import Link, PublishOutcome
from spot_work.rabbitmq.outbox import INEXPRESSIBLE
from spot_work.request.message import Message
from spot_work.request.pending import PendingRequests

log: Final = logging.getLogger("spot_work")

_PREFETCH: Final = 1000
"""Replies in flight to this client; they cost only memory."""
_MAX_OUTAGE_SECONDS: Final = 1e9
"""Unlimited: each request has its own timeout."""
_MAX_FAILED_OPENINGS: Final = 3
_REJECTED_SECONDS: Final = 0.5
"""Delay before a request that a queue without a leader has rejected is sent again."""


class RabbitMQPublisher(RequestPublisher):
    """Publishes requests with publisher confirms, and consumes its own reply queue on another connection.

    If the broker has lost the reply queue, the client creates another one and sends all open requests again,
    under their ids and marked: their replies went to the lost queue.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``; or what returns it.

    Raises:
        ValueError: the URL cannot be parsed.
    """

    def __init__(self, url: BrokerUrl | UrlSource, queue: Queue, pending: PendingRequests) -> None:
        source = UrlSource.of(url)
        self._queue = queue
        self._pending = pending
        self._is_declared = declare.is_declared(source.url)
        self._reply_queue = self._new_reply_queue()
        self._is_reply_queue_declared = False
        self._is_reply_queue_lost = False
        self._must_send_all = False
        self._failed_openings = 0
        self._can_receive = threading.Event()
        self._replies = Link(
            source,
            self._prepare_replies,
            self._on_replies_ready,
            self._on_failure,
            _MAX_OUTAGE_SECONDS,
            on_unprepared=self._on_unprepared,
        )
        self._requests = Link(
            source, self._prepare_requests, self._send_unconfirmed, self._on_failure, _MAX_OUTAGE_SECONDS
        )
        self._requests.start()
        self._replies.start()

    def check(self, message: Message) -> None:
        """Raise ``ValueError`` for a request above the broker's limit, or with a priority that it ignores.

        The limit is known once it has refused a request, its version once it has been reached.
        """
        if reason := self._requests.refusal(message.body):
            raise ValueError(f"the request cannot be sent: {reason}")
        if self._requests.version is not None and (error := self._priority_error(message)):
            raise ValueError(error)

    def _priority_error(self, message: Message) -> str:
        version = self._requests.version
        if message.priority == "normal" or versions.has_priorities(version):
            return ""
        name = "unknown" if version is None else ".".join(map(str, version))
        return f"priority must be 'normal' before RabbitMQ 4.0 (this is {name}), not {message.priority!r}"

    def send(self, request_id: str) -> None:
        self._requests.call(partial(self._send, request_id))

    def cancel(self, request_id: str) -> None:
        exchange = declare.cancellation_exchange(self._queue)
        publish = partial(self._requests.publish, "", request_id.encode(), exchange=exchange)
        self._requests.call(lambda _: self._requests.blocked_reason or publish())  # as in `_send`

    def close(self) -> None:
        self._requests.close()
        self._replies.call(lambda channel: channel.queue_delete(self._reply_queue))
        self._replies.close()

    def _new_reply_queue(self) -> str:
        return f"{declare.reply_exchange(self._queue)}.{uuid.uuid4().hex}"

    def _prepare_requests(self, channel: Any) -> Declarations:
        yield from declare.request_queue(channel, self._queue, is_declared=self._is_declared)

    def _prepare_replies(self, channel: Any) -> Declarations:
        # The reply queue is bound to an exchange of the queue of requests.
        yield from declare.request_queue(channel, self._queue, is_declared=self._is_declared)
        if self._is_reply_queue_lost:
            log.warning("%s: reply queue lost, open requests are sent again", self._queue.name)
            self._reply_queue = self._new_reply_queue()
            self._is_reply_queue_declared = self._is_reply_queue_lost = False
            self._must_send_all = True
        is_new = not self._is_reply_queue_declared
        yield from declare.reply_queue(channel, self._queue, self._reply_queue, is_new=is_new)
        yield partial(channel.basic_qos, prefetch_count=_PREFETCH)
        # Acknowledged one by one: replies in flight when the connection breaks are redelivered.
        yield partial(channel.basic_consume, self._reply_queue, self._on_reply)

    def _on_replies_ready(self) -> None:
        self._is_reply_queue_declared = True
        self._failed_openings = 0
        self._can_receive.set()
        self._requests.call(lambda _: self._send_unconfirmed())

    def _on_unprepared(self, *, is_lost: bool) -> None:
        """Give the reply queue up if the broker has lost it, or has not opened it several times in a row."""
        self._can_receive.clear()
        self._failed_openings += 1
        self._is_reply_queue_lost = is_lost or self._failed_openings >= _MAX_FAILED_OPENINGS

    def _send_unconfirmed(self) -> None:
        if not self._can_receive.is_set():
            return
        reset, self._must_send_all = self._must_send_all, False
        for request_id in self._pending.unconfirmed(reset=reset):
            self._send(request_id)

    def _send(self, request_id: str, _: Any = None) -> None:
        request = self._pending.get(request_id)
        route = self._requests.connections, self._reply_queue
        # To a blocked broker it is sent later: pika would buffer it, expired or not.
        can_send = self._can_receive.is_set() and not self._requests.blocked_reason
        if request is None or request.sent_via == route or not can_send:
            return
        if error := self._priority_error(request.message):
            self._pending.resolve(request_id, WorkError(f"{self._queue.name}: {error}"))
            return
        message, request.sent_via = request.to_message(self._reply_queue), route
        on_outcome = partial(self._on_outcome, request_id, route)
        properties, exchange = wire.properties(message), declare.request_exchange(self._queue)
        self._requests.publish(
            self._queue.name, message.body, properties, on_outcome, exchange, mandatory=True
        )

    def _on_outcome(self, request_id: str, route: tuple[int, str], outcome: PublishOutcome) -> None:
        request = self._pending.get(request_id)
        if request is None or request.sent_via != route or route[1] != self._reply_queue:
            return
        if outcome is PublishOutcome.CONFIRMED:
            request.is_confirmed = True
        elif outcome is PublishOutcome.REJECTED:
            self._requests.call(partial(self._on_rejected, request_id))
        elif outcome is PublishOutcome.IMPOSSIBLE:
            reason = self._requests.refusal(request.message.body) or INEXPRESSIBLE
            text = f"{self._queue.name}: the request cannot be sent: {reason}"
            self._pending.resolve(request_id, WorkError(text))

    def _on_rejected(self, request_id: str, channel: Any) -> None:
        """Resolve with `QueueFullError`, or send again: a queue without a leader rejects messages, too."""

        def on_declared(frame: Any) -> None:
            limit = self._queue.max_length
            if limit and frame.method.message_count >= limit:
                full = QueueFullError(f"{self._queue.name}: queue full, maximum length {limit}")
                self._pending.resolve(request_id, full)
            else:
                self._requests.call_later(_REJECTED_SECONDS, partial(self._send_again, request_id))

        channel.queue_declare(self._queue.name, passive=True, callback=on_declared)

    def _send_again(self, request_id: str) -> None:
        if (request := self._pending.get(request_id)) is not None:
            request.sent_via = ()
            self._send(request_id)

    def _on_reply(self, channel: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        try:
            resolve_reply(self._pending, self._queue.name, wire.read(body, properties))
        except Exception as error:  # whatever another client may send ends here
            log.error("%s: malformed reply: %s", self._queue.name, error)

    def _on_failure(self, error: Exception) -> None:
        log.error("%s", error)
        self._pending.fail_all(error)
