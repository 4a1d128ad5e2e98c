"""A connection to RabbitMQ in its own thread, which reconnects when it breaks.

pika connections belong to one thread. Everything that uses the channel runs in that thread; other threads
submit their calls with `Link.call`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import takewhile
from typing import Any, Final

import pika
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAuthenticationError,
)

from spot_work.errors import BrokerRefusedError
from spot_work.queue import threads
from spot_work.queue.backoff import Backoff
from spot_work.queue.url_source import UrlSource
from spot_work.rabbitmq import versions
from spot_work.rabbitmq.connection import Connection, can_encode
from spot_work.rabbitmq.declare import Declarations

log: Final = logging.getLogger("spot_work")

_PREPARE_SECONDS: Final = 30.0
"""Maximum time from the first byte to the last declaration; a queue without a leader never answers."""
_RETURNED_SECONDS: Final = 1.0
"""Time from a message that no queue takes to the next connection; others are confirmed meanwhile."""
_HEARTBEAT_SECONDS: Final = 30
_GATHER_SECONDS: Final = 0.001
"""Least time from calls to the next: those between run together, and their frames are sent together."""
_REFUSED_CODES: Final = (403, 406)
"""AMQP reply codes of a refused declaration: access-refused, precondition-failed."""
_LOGIN_REFUSED: Final = repr(ConnectionClosedByBroker(403, "")).removesuffix("''")
"""What pika's ``ProbableAuthenticationError`` begins with if the broker refused the login.

pika raises it for every connection that ends during the login, one that broke as well.
"""
_MAX_REFUSALS: Final = 2
"""Refusals in a row that are final: a broker that starts may not know its users and permissions yet.

Of a login that can be read again only those count that were read since the refusal before: a rotation ends
the validity of the login that a client started with.
"""
_SCHEMES: Final = ("amqp://", "amqps://")
_NO_QUEUE: Final = "NOT_FOUND - no queue"
"""The broker's text for a queue that does not exist; one that is down has another."""
_NO_DEFAULT_EXCHANGE: Final = "access to exchange 'amq.default'"
"""The broker's text when it closes a channel for a message that its user may not publish there."""
_TOO_LARGE: Final = re.compile(r"message size \d+ is larger than (?:configured )?max size (\d+)")
"""The broker's text when it closes a channel for a message. Source: rabbitmq-server, ``rabbit_channel``."""

_ACK_TIMEOUT: Final = re.compile(r"delivery acknowledgement .*Timeout value used: (\d+) ms")
"""The broker's text when it closes a channel for an unsettled delivery, with the milliseconds of
``consumer_timeout``. Nothing in AMQP has them before, nor from 4.3 on: it cancels the consumer without a
reason, if the client supports that. Source: rabbitmq-server, ``rabbit_channel``."""


class PublishOutcome(Enum):
    """The broker's response to a published message."""

    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    """The queue has not stored it, or a ``mandatory`` one had no queue."""
    UNKNOWN = "unknown"
    """The connection broke before the broker responded."""
    IMPOSSIBLE = "impossible"
    """The broker never stores it (`Link.refusal`), or AMQP cannot express it."""


@dataclass(frozen=True)
class _Unconfirmed:
    body: bytes
    on_outcome: Callable[[PublishOutcome], None]
    returned_as: object
    """The message id of a mandatory message; the broker returns a message without its number."""


class Link:
    """A reconnecting connection, with one channel in publisher-confirm mode.

    RabbitMQ stops reading from a connection that publishes while the broker is low on memory or disk, so
    a connection that publishes must not consume (RabbitMQ guide, "Memory and Disk Alarms").

    Args:
        source: of the URL, ``amqp://user:password@host:port/vhost``, or ``amqps://``. It is read again after
            each login that the broker refuses; while that fails, the link waits as for a broker that is away.
        prepare: declares queues and starts consumers on each new channel.
        on_ready: called in the link's thread after that, and when a blocked broker takes messages again.
        on_failure: called once, in the link's thread, with an error that ends the connection for good.
        max_outage_seconds: maximum time without a connection.
        on_unprepared: called in the link's thread if the broker refuses or never answers a declaration, or
            cancels a consumer; ``is_lost``: a queue does not exist, or has no leader that answers.
        relay: returns the local port that leads to the broker, see `spot_work.watchdog`; None: directly.
        after_calls: called with the channel in the link's thread after the functions of `call`.

    Raises:
        ValueError: the URL cannot be parsed.
    """

    def __init__(
        self,
        source: UrlSource,
        prepare: Callable[[Any], Declarations],
        on_ready: Callable[[], None],
        on_failure: Callable[[Exception], None],
        max_outage_seconds: float,
        *,
        on_unprepared: Callable[..., None] = lambda **_: None,
        relay: Callable[[str], int] | None = None,
        after_calls: Callable[[Any], object] = lambda _: None,
    ) -> None:
        self._source = source
        self._after_calls = after_calls
        self._use(source.url)
        self._relay = relay
        self._prepare = prepare
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._on_unprepared = on_unprepared
        self._max_outage_seconds = max_outage_seconds
        self._connection: Connection | None = None
        self._channel: Any = None
        self._is_ready = False
        self._connection_lock = threading.Lock()
        """Keeps the connection open while another thread adds a callback to its loop."""
        self._unconfirmed: dict[int, _Unconfirmed] = {}
        self._published_count = 0
        self._calls: deque[Callable[[Any], object]] = deque()
        self._called_at = 0.0
        self._error: Exception | None = None
        self._refusals = 0
        self._was_refused = False
        self._is_login_refused = False
        """Whether the broker refused the last login, so that it is read again before the next one."""
        self._has_read_again = False
        """Whether the present URL was read since the last refusal of a login."""
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.blocked_reason = ""
        """Why the broker takes no messages at present, by its own word; empty: it takes them."""
        self.max_bytes: int | None = None
        """The broker's maximum message size; None until it has refused a message."""
        self._has_default_exchange = True
        self.ack_timeout_seconds: float | None = None
        """The broker's ``consumer_timeout``; None until it has closed a channel for it."""
        self.version: versions.BrokerVersion | None = None
        """The broker's version; None until connected, or if it is unknown."""
        self.connections = 0
        """Number of connections so far: identifies the present one."""

    def start(self) -> None:
        """Start to connect; ``on_ready`` is called when connected."""
        self._thread = threads.start("spot-work-link", self._run, self._on_failure)

    def call(self, function: Callable[[Any], object]) -> None:
        """Call a function with the channel in the link's thread; do nothing without a connection."""
        with self._connection_lock:
            if self._connection is not None and self._is_ready:
                self._calls.append(function)
                if len(self._calls) == 1:  # with one before it `_run_calls` is due, or will look again
                    self._connection.ioloop.add_callback_threadsafe(self._run_calls_soon)

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Call a function in some seconds if the connection lasts; only in the link's thread."""
        if self._connection is not None:
            self._connection.ioloop.call_later(seconds, function)

    def publish(
        self,
        routing_key: str,
        body: bytes,
        properties: pika.BasicProperties | None = None,
        on_outcome: Callable[[PublishOutcome], None] = lambda _: None,
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> None:
        """Publish a message to a queue or an exchange; only in the link's thread.

        ``on_outcome`` is called in that thread with the broker's response. Without ``mandatory`` the broker
        confirms and drops a message that no queue takes.
        """
        if self.refusal(body, exchange):
            on_outcome(PublishOutcome.IMPOSSIBLE)
            return
        if not self._is_ready or not self._channel.is_open:
            on_outcome(PublishOutcome.UNKNOWN)
            return
        try:
            self._channel.basic_publish(exchange, routing_key, body, properties, mandatory)
        except Exception as error:
            if can_encode(routing_key, properties):
                raise
            # pika encodes a message before it sends any of it.
            log.error("%s: a message to %r cannot be sent: %r", self._broker, routing_key, error)
            on_outcome(PublishOutcome.IMPOSSIBLE)
            return
        self._published_count += 1
        returned_as = properties.message_id if mandatory and properties else None
        self._unconfirmed[self._published_count] = _Unconfirmed(body, on_outcome, returned_as)

    def refusal(self, body: bytes, exchange: str | None = None) -> str:
        """Return why the broker never stores such a message, by what it has refused; empty: it may."""
        if self.max_bytes is not None and len(body) > self.max_bytes:
            return f"it has {len(body)} bytes, more than the broker's maximum message size, {self.max_bytes}"
        is_refused = exchange == "" and not self._has_default_exchange
        return "the user may not publish to the default exchange" if is_refused else ""

    def close(self, timeout: float = 5.0) -> None:
        """Close the connection and wait for it; unconfirmed messages get the outcome ``UNKNOWN``."""
        self._closing.set()
        with self._connection_lock:
            if (connection := self._connection) is not None:
                connection.ioloop.add_callback_threadsafe(partial(self._shut_down, connection))
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _use(self, url: str) -> None:
        """Log in with a URL from now on; raise ``ValueError`` if it cannot be parsed."""
        self._url = url
        if not url.startswith(_SCHEMES):  # pika takes an empty text for its defaults
            raise ValueError(f"the URL is not of AMQP; it must begin with {' or '.join(_SCHEMES)}")
        self._parameters = pika.URLParameters(url)
        if "heartbeat=" not in url:
            self._parameters.heartbeat = _HEARTBEAT_SECONDS
        self._broker = f"{self._parameters.host}:{self._parameters.port}"

    def _read_again(self) -> None:
        """Read a refused login again; raises ``ConnectionError``, without a part of the URL."""
        if not (self._is_login_refused and self._source.can_read_again):
            return
        try:
            url = self._source.read_again(self._url)
        except Exception as error:  # of the user's function
            raise ConnectionError(
                f"the login was refused, and its URL cannot be read again: {error!r}"
            ) from error
        try:
            self._use(url)
        except (ValueError, TypeError, AttributeError):
            raise ConnectionError(
                "the login was refused, and what was read again is not a URL of AMQP"
            ) from None
        self._is_login_refused, self._has_read_again = False, True

    def _run_calls_soon(self) -> None:
        if (wait := self._called_at + _GATHER_SECONDS - time.monotonic()) > 0:
            self.call_later(wait, self._run_calls)
        else:
            self._run_calls()

    def _run_calls(self) -> None:
        assert self._connection is not None
        self._called_at = time.monotonic()
        with self._connection.one_write():
            while self._calls:
                function = self._calls.popleft()
                if self._is_ready and self._channel.is_open:
                    function(self._channel)
            if self._is_ready and self._channel.is_open:
                self._after_calls(self._channel)

    def _shut_down(self, connection: pika.SelectConnection) -> None:
        self._run_calls()
        # A broker that blocks this connection does not read that it is closed.
        if connection.is_open and not self.blocked_reason:
            connection.close()
        else:
            connection.ioloop.stop()

    def _run(self) -> None:
        backoff = Backoff()
        while not self._closing.is_set():
            was_ready = self._connect()
            if self._closing.is_set():
                return
            if was_ready:
                backoff.reset()
            if isinstance(self._error, BrokerRefusedError):
                self._on_failure(self._error)
                return
            text = describe(self._error)
            if (outage := backoff.total_seconds) >= self._max_outage_seconds:
                self._on_failure(ConnectionError(f"{self._broker}: unreachable for {outage:.0f} s: {text}"))
                return
            seconds = backoff.next_delay()
            log.warning("%s: %s; reconnecting in %.1f s", self._broker, text, seconds)
            self._closing.wait(seconds)

    def _connect(self) -> bool:
        """Connect, and run until the connection ends; return whether it was ever ready."""
        self._error, self._was_refused, was_ready = None, False, False
        self.connections += 1
        try:
            self._read_again()
            if self._relay is not None:
                self._parameters.host, self._parameters.port = "127.0.0.1", self._relay(self._url)
                self._parameters.ssl_options = None  # the relay has the TLS connection
            connection = self._connection = Connection(
                self._parameters,
                on_open_callback=self._on_open,
                on_open_error_callback=self._on_broken,
                on_close_callback=self._on_broken,
            )
            if self._closing.is_set():
                return False
            connection.ioloop.start()
        except (AMQPConnectionError, OSError) as error:
            self._error = error
        except Exception as error:  # of a callback: the broker delivers again what it was about
            log.exception("%s: connection closed", self._broker)
            self._error = error
        finally:
            with self._connection_lock:
                was_ready, self._is_ready = self._is_ready, False
                if self._connection is not None:
                    self._connection.ioloop.close()
                self._connection = self._channel = None
            self._count_refusal(was_ready=was_ready)
            self.blocked_reason = ""
            unconfirmed, self._unconfirmed, self._published_count = self._unconfirmed, {}, 0
            for message in unconfirmed.values():
                message.on_outcome(PublishOutcome.UNKNOWN)
            self._calls.clear()
        return was_ready

    def _count_refusal(self, *, was_ready: bool) -> None:
        """Make the second refusal in a row final; one of a login that was not read again does not count."""
        is_outdated = self._is_login_refused and self._source.can_read_again and not self._has_read_again
        if was_ready:
            self._has_read_again = False
        if is_outdated:
            return
        self._refusals = self._refusals + 1 if self._was_refused and not was_ready else 0
        if self._refusals >= _MAX_REFUSALS:
            text = getattr(self._error, "reply_text", "") or str(self._error)
            self._error = BrokerRefusedError(f"{self._broker}: {text}")

    def _on_open(self, connection: pika.SelectConnection) -> None:
        self.version = versions.read(connection.server_properties)
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        connection.ioloop.call_later(_PREPARE_SECONDS, self._check_prepared)
        connection.channel(on_open_callback=self._on_channel_open)

    def _check_prepared(self) -> None:
        if not self._is_ready and self._connection is not None:
            self._error = TimeoutError(f"no answer to a declaration for {_PREPARE_SECONDS:g} s")
            self._on_unprepared(is_lost=True)
            self._connection.ioloop.stop()

    def _on_channel_open(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_cancel_callback(self._on_canceled)
        channel.add_on_return_callback(self._on_returned)
        declarations = self._prepare(channel)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._declare_next(declarations))

    def _declare_next(self, declarations: Declarations) -> None:
        if not self._channel.is_open:
            return  # it is being closed
        declare = next(declarations, None)
        if declare is None:
            self._is_ready = True
            log.info("%s: connected", self._broker)
            self._on_ready()
        else:
            declare(callback=lambda _: self._declare_next(declarations))

    def _on_confirm(self, frame: Any) -> None:
        tag, outcome = frame.method.delivery_tag, PublishOutcome.CONFIRMED
        if isinstance(frame.method, pika.spec.Basic.Nack):
            outcome = PublishOutcome.REJECTED
        # With ``multiple`` the confirm covers all messages up to the tag.
        tags = list(takewhile(tag.__ge__, self._unconfirmed)) if frame.method.multiple else [tag]
        for confirmed in tags:
            if (message := self._unconfirmed.pop(confirmed, None)) is not None:
                message.on_outcome(outcome)

    def _on_returned(self, channel: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        """Count a message as rejected, and connect again, which declares its queue.

        The broker returns it before it confirms it. Source: RabbitMQ guide "Consumer Acknowledgements and
        Publisher Confirms". An unknown one ends the connection at once, so that nothing counts as stored.
        """
        sent = self._unconfirmed
        tag = next(t for t in sent if (sent[t].returned_as, sent[t].body) == (properties.message_id, body))
        self._unconfirmed.pop(tag).on_outcome(PublishOutcome.REJECTED)
        if self._error is None:
            self._error = ConnectionError(f"no queue for {method.routing_key!r} of {method.exchange!r}")
            self.call_later(_RETURNED_SECONDS, lambda: channel.is_open and channel.connection.close())

    def _on_blocked(self, _: object, frame: Any) -> None:
        self.blocked_reason = frame.method.reason or "blocked"
        log.warning("%s: the broker takes no messages: %s", self._broker, self.blocked_reason)

    def _on_unblocked(self, *_: object) -> None:
        self.blocked_reason = ""
        log.info("%s: the broker takes messages again", self._broker)
        if self._is_ready:
            self._on_ready()

    def _on_canceled(self, frame: Any) -> None:
        self._on_unprepared(is_lost=True)
        self._channel.close(reply_text="queue deleted, or a request not settled within consumer_timeout")

    def _on_channel_closed(self, channel: Any, error: Exception) -> None:
        self._error = error
        if isinstance(error, ChannelClosedByBroker):
            if size := _TOO_LARGE.search(error.reply_text):
                self.max_bytes = int(size[1])
            self._has_default_exchange &= _NO_DEFAULT_EXCHANGE not in error.reply_text
            if milliseconds := _ACK_TIMEOUT.search(error.reply_text):
                self.ack_timeout_seconds = int(milliseconds[1]) / 1000
            if not self._is_ready:
                self._was_refused = error.reply_code in _REFUSED_CODES
                self._on_unprepared(is_lost=_NO_QUEUE in error.reply_text)
        if channel.connection.is_open:
            channel.connection.close()

    def _on_broken(self, connection: pika.SelectConnection, reason: Exception | str) -> None:
        error = reason if isinstance(reason, Exception) else ConnectionError(reason)
        self._is_login_refused = is_login_refusal(error)
        self._was_refused = self._was_refused or self._is_login_refused
        self._error = self._error or error
        connection.ioloop.stop()


def is_login_refusal(error: Exception) -> bool:
    """Return whether the broker refused the login, not a connection that broke during it."""
    return isinstance(error, ProbableAuthenticationError) and str(error.args[0]).startswith(_LOGIN_REFUSED)


def describe(error: BaseException | None) -> str:
    """Return an error's message; pika's errors are often empty and wrap the error that has the message."""
    candidates = (*getattr(error, "exceptions", ()), *getattr(error, "args", ()))
    wrapped = [candidate for candidate in candidates if candidate]
    if wrapped and isinstance(wrapped[-1], BaseException):
        return describe(wrapped[-1])
    return str(error) or type(error).__name__
