"""A connection to RabbitMQ in its own thread, which reconnects when it breaks.

pika connections belong to one thread. Everything that uses the channel runs in that thread; other threads
submit their calls with `Link.call`.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Final

import pika
from pika.exceptions import (
    AMQPConnectionError,
    AuthenticationError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from spot_work.errors import BrokerRefusedError
from spot_work.rabbitmq.declare import Declarations

log: Final = logging.getLogger("spot_work")

_MIN_DELAY_SECONDS: Final = 0.5
_MAX_DELAY_SECONDS: Final = 15.0
"""Delays between connection attempts: they double from the minimum to the maximum."""
_BLOCKED_SECONDS: Final = 300.0
"""Reconnect after this time: a broker low on memory or disk blocks its publishers."""
_HEARTBEAT_SECONDS: Final = 30
_PERMANENT_CODES: Final = (403, 404, 405, 406, 530)
"""AMQP reply codes: access-refused, not-found, resource-locked, precondition-failed, not-allowed (vhost)."""
_PERMANENT_ERRORS: Final = (AuthenticationError, ProbableAuthenticationError, ProbableAccessDeniedError)


class PublishOutcome(Enum):
    """The broker's response to a published message."""

    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    """The connection broke before the broker responded."""


class Link:
    """A reconnecting connection, with one channel in publisher-confirm mode.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``.
        prepare: declares queues and starts consumers on each new channel.
        on_ready: called in the link's thread after that.
        on_failure: called once, in the link's thread, with an error that ends the connection for good.
        max_outage_seconds: maximum time without a connection.

    Raises:
        ValueError: the URL cannot be parsed.
    """

    def __init__(
        self,
        url: str,
        prepare: Callable[[Any], Declarations],
        on_ready: Callable[[], None],
        on_failure: Callable[[Exception], None],
        max_outage_seconds: float,
    ) -> None:
        self._parameters = pika.URLParameters(url)
        if "heartbeat=" not in url:
            self._parameters.heartbeat = _HEARTBEAT_SECONDS
        self._parameters.blocked_connection_timeout = _BLOCKED_SECONDS
        self._broker = f"{self._parameters.host}:{self._parameters.port}"
        self._prepare = prepare
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._max_outage_seconds = max_outage_seconds
        self._connection: pika.SelectConnection | None = None
        self._channel: Any = None
        self._is_ready = False
        self._connection_lock = threading.Lock()
        """Keeps the connection open while another thread adds a callback to its loop."""
        self._unconfirmed: dict[int, Callable[[PublishOutcome], None]] = {}
        self._published_count = 0
        self._calls: deque[tuple[Callable[[Any], object], Callable[[], object]]] = deque()
        self._error: Exception | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spot-work-link", daemon=True)

    def start(self) -> None:
        """Start to connect; ``on_ready`` is called when connected."""
        self._thread.start()

    def call(self, function: Callable[[Any], object], or_else: Callable[[], object] = lambda: None) -> None:
        """Call a function with the channel in the link's thread, or ``or_else`` without a connection."""
        with self._connection_lock:
            if self._connection is not None and self._is_ready:
                self._calls.append((function, or_else))
                self._connection.ioloop.add_callback_threadsafe(self._run_calls)
                return
        or_else()

    def publish(
        self,
        routing_key: str,
        body: bytes,
        properties: pika.BasicProperties | None = None,
        on_outcome: Callable[[PublishOutcome], None] = lambda _: None,
        exchange: str = "",
    ) -> None:
        """Publish a message to a queue or an exchange; only in the link's thread.

        ``on_outcome`` is called in that thread with the broker's response.
        """
        if not self._is_ready:
            on_outcome(PublishOutcome.UNKNOWN)
            return
        self._published_count += 1
        self._unconfirmed[self._published_count] = on_outcome
        self._channel.basic_publish(exchange, routing_key, body, properties)

    def close(self, timeout: float = 5.0) -> None:
        """Close the connection and wait for it; unconfirmed messages get the outcome ``UNKNOWN``."""
        self._closing.set()
        with self._connection_lock:
            if (connection := self._connection) is not None:
                connection.ioloop.add_callback_threadsafe(partial(self._shut_down, connection))
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def _run_calls(self) -> None:
        while self._calls:
            function, or_else = self._calls.popleft()
            if self._is_ready:
                function(self._channel)
            else:
                or_else()

    def _shut_down(self, connection: pika.SelectConnection) -> None:
        if connection.is_open:
            connection.close()
        else:
            connection.ioloop.stop()

    def _run(self) -> None:
        delay, outage_seconds = _MIN_DELAY_SECONDS, 0.0
        while not self._closing.is_set():
            was_ready = self._connect()
            if self._closing.is_set():
                return
            if was_ready:
                delay, outage_seconds = _MIN_DELAY_SECONDS, 0.0
            if isinstance(self._error, BrokerRefusedError):
                self._on_failure(self._error)
                return
            if outage_seconds >= self._max_outage_seconds:
                self._on_failure(
                    ConnectionError(
                        f"{self._broker}: unreachable for {outage_seconds:.0f} s: {_describe(self._error)}"
                    )
                )
                return
            wait = delay * random.uniform(0.5, 1.0)  # jitter: a fleet's workers must not reconnect together
            log.warning("%s: %s; reconnecting in %.1f s", self._broker, _describe(self._error), wait)
            self._closing.wait(wait)
            outage_seconds += wait
            delay = min(2 * delay, _MAX_DELAY_SECONDS)

    def _connect(self) -> bool:
        """Connect, and run until the connection ends; return whether it was ever ready."""
        self._error, was_ready = None, False
        try:
            connection = self._connection = pika.SelectConnection(
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
        finally:
            with self._connection_lock:
                was_ready, self._is_ready = self._is_ready, False
                if self._connection is not None:
                    self._connection.ioloop.close()
                self._connection = self._channel = None
            unconfirmed, self._unconfirmed, self._published_count = self._unconfirmed, {}, 0
            for on_outcome in unconfirmed.values():
                on_outcome(PublishOutcome.UNKNOWN)
            self._run_calls()
        return was_ready

    def _on_open(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._on_channel_open)

    def _on_channel_open(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_cancel_callback(lambda _: channel.close(reply_text="the queue was deleted"))
        declarations = self._prepare(channel)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._declare_next(declarations))

    def _declare_next(self, declarations: Declarations) -> None:
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
        tags = [t for t in self._unconfirmed if t <= tag] if frame.method.multiple else [tag]
        for confirmed in tags:
            if (on_outcome := self._unconfirmed.pop(confirmed, None)) is not None:
                on_outcome(outcome)

    def _on_channel_closed(self, channel: Any, error: Exception) -> None:
        self._error = error
        is_first = not self._is_ready
        if is_first and isinstance(error, ChannelClosedByBroker) and error.reply_code in _PERMANENT_CODES:
            self._error = BrokerRefusedError(f"{self._broker}: {error.reply_text}")
        if channel.connection.is_open:
            channel.connection.close()

    def _on_broken(self, connection: pika.SelectConnection, reason: Exception | str) -> None:
        error = reason if isinstance(reason, Exception) else ConnectionError(reason)
        is_permanent = isinstance(error, _PERMANENT_ERRORS) or (
            isinstance(error, ConnectionClosedByBroker) and error.reply_code in _PERMANENT_CODES
        )
        if is_permanent:
            self._error = BrokerRefusedError(f"{self._broker}: {error}")
        self._error = self._error or error
        connection.ioloop.stop()


def _describe(error: BaseException | None) -> str:
    """Return an error's message; pika's errors are often empty and wrap the error that has the message."""
    candidates = (*getattr(error, "exceptions", ()), *getattr(error, "args", ()))
    wrapped = [candidate for candidate in candidates if candidate]
    if wrapped and isinstance(wrapped[-1], BaseException):
        return _describe(wrapped[-1])
    return str(error) or type(error).__name__
