"""One connection to RabbitMQ, in a thread of its own, made anew when it breaks.

pika's connections belong to one thread. All that touches the channel runs in that one; others hand it over
with `Link.call`.
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

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0
"""Seconds between two tries to connect: they double from the first to the longest."""
_BLOCKED_SECONDS: Final = 300.0
"""A broker short of memory or disk holds publishers back; after so long we connect anew."""
_HEARTBEAT: Final = 30
_REFUSALS: Final = (403, 404, 405, 406, 530)
"""AMQP codes that refuse a declaration: access, no such thing, locked, other arguments, no such vhost."""
_REFUSED_ERRORS: Final = (AuthenticationError, ProbableAuthenticationError, ProbableAccessDeniedError)


class Fate(Enum):
    """What became of a message that was published."""

    KEPT = "kept"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """The connection broke before the broker said."""


class Link:
    """A connection that comes back, with one channel whose publications are confirmed.

    Args:
        url: ``amqp://user:password@host:port/vhost``, or ``amqps://``.
        prepare: declares and consumes on each new channel.
        ready: called in the link's thread when that is done.
        failed: called once, in the link's thread, when there is no use in going on.
        give_up_after: seconds in a row without a connection.

    Raises:
        ValueError: the address cannot be read.
    """

    def __init__(
        self,
        url: str,
        prepare: Callable[[Any], Declarations],
        ready: Callable[[], None],
        failed: Callable[[Exception], None],
        give_up_after: float,
    ) -> None:
        self._parameters = pika.URLParameters(url)
        if "heartbeat=" not in url:
            self._parameters.heartbeat = _HEARTBEAT
        self._parameters.blocked_connection_timeout = _BLOCKED_SECONDS
        self._broker = f"{self._parameters.host}:{self._parameters.port}"
        self._prepare = prepare
        self._ready = ready
        self._failed = failed
        self._give_up_after = give_up_after
        self._connection: pika.SelectConnection | None = None
        self._channel: Any = None
        self._is_ready = False
        self._guard = threading.Lock()
        """Of the connection, against being closed while somebody wakes it."""
        self._unsettled: dict[int, Callable[[Fate], None]] = {}
        self._published = 0
        self._calls: deque[tuple[Callable[[Any], object], Callable[[], object]]] = deque()
        self._error: Exception | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._live, name="spot-work-link", daemon=True)

    def start(self) -> None:
        """Begin to connect; `ready` is called when that is done."""
        self._thread.start()

    def call(self, do: Callable[[Any], object], or_else: Callable[[], object] = lambda: None) -> None:
        """Let the link's thread do something with the channel, or, where there is none, ``or_else``."""
        with self._guard:
            if self._connection is not None and self._is_ready:
                self._calls.append((do, or_else))
                self._connection.ioloop.add_callback_threadsafe(self._take_calls)
                return
        or_else()

    def publish(
        self,
        key: str,
        body: bytes,
        properties: pika.BasicProperties | None = None,
        fate: Callable[[Fate], None] = lambda _: None,
        exchange: str = "",
    ) -> None:
        """Send a message to the queue ``key``, or an exchange; only from within the link's thread.

        ``fate`` is told what became of it.
        """
        if not self._is_ready:
            fate(Fate.UNKNOWN)
            return
        self._published += 1
        self._unsettled[self._published] = fate
        self._channel.basic_publish(exchange, key, body, properties)

    def close(self, seconds: float = 5.0) -> None:
        """Close, and wait for that; what was not confirmed has an unknown fate."""
        self._closing.set()
        with self._guard:
            if (connection := self._connection) is not None:
                connection.ioloop.add_callback_threadsafe(partial(self._shut, connection))
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(seconds)

    def _take_calls(self) -> None:
        while self._calls:
            do, or_else = self._calls.popleft()
            if self._is_ready:
                do(self._channel)
            else:
                or_else()

    def _shut(self, connection: pika.SelectConnection) -> None:
        if connection.is_open:
            connection.close()
        else:
            connection.ioloop.stop()

    def _live(self) -> None:
        pause, alone = _FIRST_PAUSE, 0.0
        while not self._closing.is_set():
            was_ready = self._connect()
            if self._closing.is_set():
                return
            if was_ready:
                pause, alone = _FIRST_PAUSE, 0.0
            if isinstance(self._error, BrokerRefusedError):
                self._failed(self._error)
                return
            if alone >= self._give_up_after:
                self._failed(
                    ConnectionError(f"{self._broker}: not reached for {alone:.0f} s: {_words(self._error)}")
                )
                return
            wait = pause * random.uniform(0.5, 1.0)  # not all workers of a fleet at once
            log.warning("%s: %s; again in %.1f s", self._broker, _words(self._error), wait)
            self._closing.wait(wait)
            alone += wait
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _connect(self) -> bool:
        """Connect, and return when that connection is over; tell whether it was ready at any time."""
        self._error, was_ready = None, False
        try:
            connection = self._connection = pika.SelectConnection(
                self._parameters,
                on_open_callback=self._opened,
                on_open_error_callback=self._broken,
                on_close_callback=self._broken,
            )
            if self._closing.is_set():
                return False
            connection.ioloop.start()
        except (AMQPConnectionError, OSError) as error:
            self._error = error
        finally:
            with self._guard:
                was_ready, self._is_ready = self._is_ready, False
                if self._connection is not None:
                    self._connection.ioloop.close()
                self._connection = self._channel = None
            lost, self._unsettled, self._published = self._unsettled, {}, 0
            for fate in lost.values():
                fate(Fate.UNKNOWN)
            self._take_calls()
        return was_ready

    def _opened(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_cancel_callback(lambda _: channel.close(reply_text="the queue was deleted"))
        steps = self._prepare(channel)
        channel.confirm_delivery(self._settled, callback=lambda _: self._step(steps))

    def _step(self, steps: Declarations) -> None:
        call = next(steps, None)
        if call is None:
            self._is_ready = True
            log.info("%s: connected", self._broker)
            self._ready()
        else:
            call(callback=lambda _: self._step(steps))

    def _settled(self, frame: Any) -> None:
        tag, fate = frame.method.delivery_tag, Fate.KEPT
        if isinstance(frame.method, pika.spec.Basic.Nack):
            fate = Fate.REFUSED
        # Confirms may come for many at once; what was published first stands first.
        tags = [t for t in self._unsettled if t <= tag] if frame.method.multiple else [tag]
        for settled in tags:
            if (tell := self._unsettled.pop(settled, None)) is not None:
                tell(fate)

    def _channel_closed(self, channel: Any, why: Exception) -> None:
        self._error = why
        if isinstance(why, ChannelClosedByBroker) and not self._is_ready and why.reply_code in _REFUSALS:
            self._error = BrokerRefusedError(f"{self._broker}: {why.reply_text}")
        if channel.connection.is_open:
            channel.connection.close()

    def _broken(self, connection: pika.SelectConnection, why: Exception | str) -> None:
        error = why if isinstance(why, Exception) else ConnectionError(why)
        refused = isinstance(error, _REFUSED_ERRORS)
        refused = refused or (isinstance(error, ConnectionClosedByBroker) and error.reply_code in _REFUSALS)
        if refused:
            self._error = BrokerRefusedError(f"{self._broker}: {error}")
        self._error = self._error or error
        connection.ioloop.stop()


def _words(error: BaseException | None) -> str:
    """Return what an error says; pika's often say nothing themselves, but hold the ones that do."""
    held = [one for one in (*getattr(error, "exceptions", ()), *getattr(error, "args", ())) if one]
    if held and isinstance(held[-1], BaseException):
        return _words(held[-1])
    return str(error) or type(error).__name__
