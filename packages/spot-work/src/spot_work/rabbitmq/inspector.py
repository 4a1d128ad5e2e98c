"""An operator's side of a RabbitMQ queue, by AMQP with the URL of workers and clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import pika
from pika import BasicProperties
from pika.exceptions import (
    AMQPError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
    UnroutableError,
)

from spot_work.command.inspector import DeadLetter, QueueInspector, QueueStatus
from spot_work.errors import BrokerRefusedError, QueueFullError
from spot_work.queue.settings import Queue
from spot_work.rabbitmq import declare, versions, wire
from spot_work.rabbitmq.connection import Connection
from spot_work.rabbitmq.link import describe, is_login_refusal

_BLOCKED_SECONDS: Final = 30.0
"""Longest wait for a broker that takes no messages."""
_IDLE_SECONDS: Final = 5.0
"""Longest wait for the next dead letter: another client may hold some."""
_POLL_SECONDS: Final = 0.01
_MAX_LISTED: Final = 65_535
"""Dead letters of one listing: the largest prefetch count of AMQP."""


class _Received(NamedTuple):
    """A dead letter that is unacknowledged; ``publish`` sends it again or copies it, None: it stays."""

    tag: int
    letter: DeadLetter
    publish: Callable[[Any], None] | None


class RabbitMQInspector(QueueInspector):
    """See `QueueInspector`; each call has a connection of its own.

    AMQP says neither how many messages are in work nor how long they have waited. A queue without a leader
    has no messages and no consumers by AMQP. Dead letters are received and returned to their position.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``.

    Raises:
        ValueError: the URL cannot be parsed.
    """

    def __init__(self, url: str, queue: Queue) -> None:
        self._parameters = pika.URLParameters(url)
        self._parameters.blocked_connection_timeout = _BLOCKED_SECONDS
        self._broker = f"{self._parameters.host}:{self._parameters.port}"
        self._queue = queue

    def status(self) -> QueueStatus:
        """See `QueueInspector`; a dead-letter queue that the user may not see is unknown."""
        name = self._queue.name
        with self._connection() as connection:
            requests = connection.channel().queue_declare(name, passive=True).method
            try:
                dead = connection.channel().queue_declare(
                    declare.dead_letter_queue(self._queue), passive=True
                )
                dead_letters = dead.method.message_count
            except ChannelClosedByBroker:
                dead_letters = None
        return QueueStatus(name, requests.message_count, None, requests.consumer_count, None, dead_letters)

    def _visit(self, is_selected: Callable[[str], bool]) -> Iterator[tuple[DeadLetter, bool]]:
        """Send the selected dead letters again; yield all of this moment, and whether each was sent.

        All are received first, the selected ones with their bodies. The others stay unacknowledged, then are
        at the head again, in order; one that was returned so often that it would be dropped becomes a copy.
        """
        with self._connection() as connection:
            version = versions.read(connection._impl.server_properties)
            channel = connection.channel()
            channel.confirm_delivery()
            received = self._receive_all(channel, version, is_selected)
            if channel.consumer_tags:
                channel.cancel()
            try:
                for tag, letter, publish in received:
                    if publish is not None:
                        publish(channel)
                        channel.basic_ack(tag)
                    yield letter, is_selected(letter.id)
            finally:
                if channel.is_open and versions.is_nack_free(version):
                    channel.basic_nack(0, multiple=True, requeue=True)  # all that are unacknowledged
                    self._wait_for(channel, sum(publish is None for _, _, publish in received))

    def _wait_for(self, channel: Any, count: int) -> None:
        """Wait some seconds for as many dead letters: a quorum queue takes them back in parts (3.10.8)."""
        name, end = declare.dead_letter_queue(self._queue), time.monotonic() + _IDLE_SECONDS
        while time.monotonic() < end:
            if channel.queue_declare(name, passive=True).method.message_count >= count:
                return
            time.sleep(_POLL_SECONDS)

    def _receive_all(
        self, channel: Any, version: versions.BrokerVersion | None, is_selected: Callable[[str], bool]
    ) -> list[_Received]:
        """Return the dead letters of this moment, by one consumer: for it the broker restores their order."""
        name = declare.dead_letter_queue(self._queue)
        count = min(channel.queue_declare(name, passive=True).method.message_count, _MAX_LISTED)
        received: list[_Received] = []
        if not count:
            return received
        channel.basic_qos(prefetch_count=count)
        requests, dead = declare.request_exchange(self._queue), declare.dead_letter_exchange(self._queue)
        must_copy = False
        for method, properties, body in channel.consume(name, inactivity_timeout=_IDLE_SECONDS):
            if method is None:
                break
            must_copy = must_copy or (not received and versions.is_near_limit(version, properties))
            letter = wire.read_dead_letter(body, properties)
            publish = None
            if is_selected(letter.id):
                sent = wire.resend_properties(properties)
                publish = partial(self._publish, requests, self._queue.name, body, sent)
            elif must_copy:
                publish = partial(self._publish, dead, name, body, properties)
            received.append(_Received(method.delivery_tag, letter, publish))
            if len(received) == count:
                break
        return received

    def _publish(
        self, exchange: str, routing_key: str, body: bytes, properties: BasicProperties, channel: Any
    ) -> None:
        """Publish a message and wait for its confirmation."""
        try:
            channel.basic_publish(exchange, routing_key, body, properties, mandatory=True)
        except NackError:
            raise QueueFullError(f"{routing_key}: the queue is full, or has no leader") from None
        except UnroutableError:
            raise BrokerRefusedError(f"{exchange} has no queue bound; bind {routing_key}") from None

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """Connect and disconnect; the broker's refusals and lost connections become this package's errors."""
        connection = None
        try:
            connection = pika.BlockingConnection(self._parameters, _impl_class=Connection)
            yield connection
        except (ChannelClosedByBroker, ConnectionClosedByBroker) as error:
            raise BrokerRefusedError(f"{self._broker}: {error.reply_text}") from None
        except (AMQPError, OSError) as error:
            text = f"{self._broker}: {describe(error)}"
            raise BrokerRefusedError(text) if is_login_refusal(error) else ConnectionError(text) from None
        finally:
            if connection is not None and connection.is_open:
                connection.close()
