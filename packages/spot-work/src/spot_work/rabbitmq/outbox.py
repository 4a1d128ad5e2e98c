"""The replies of a worker that the broker has not confirmed, bounded in count and bytes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from spot_work.queue.url_source import UrlSource
from spot_work.rabbitmq import wire
from spot_work.rabbitmq.declare import Declarations
from spot_work.rabbitmq.link import Link, PublishOutcome
from spot_work.request.message import Message

log: Final = logging.getLogger("spot_work")

MAX_MESSAGES: Final = 1000
MAX_BYTES: Final = 64 * 1024 * 1024
"""At either limit the worker takes no more requests."""
INEXPRESSIBLE: Final = "it has headers that AMQP cannot express"
_REJECTED_SECONDS: Final = 1.0
"""Delay before a message that a queue has rejected is published again."""


@dataclass(eq=False)
class OutgoingMessage:
    """A message to publish, and what to call with the broker's response; never with ``UNKNOWN``."""

    exchange: str
    routing_key: str
    message: Message
    on_outcome: Callable[[PublishOutcome], None]
    reason: str = ""
    """Why it is dead-lettered; empty for a reply."""
    deadline: float | None = None
    """Epoch second after which the client no longer waits; None: there is none."""
    added_at: float = field(default_factory=time.monotonic)
    sent_on: int = 0
    """Number of the connection that it was published on."""


class Outbox:
    """Publishes messages until the broker has confirmed them, over any number of connections.

    Args:
        source, prepare, on_failure, max_outage_seconds, relay: as for `Link`, which the outbox has for
            itself: RabbitMQ blocks a connection that publishes while memory or disk are short.
    """

    def __init__(
        self,
        source: UrlSource,
        prepare: Callable[[Any], Declarations],
        on_failure: Callable[[Exception], None],
        max_outage_seconds: float,
        relay: Callable[[str], int] | None = None,
    ) -> None:
        self._messages: dict[int, OutgoingMessage] = {}
        self._bytes = 0
        self._changed = threading.Condition()
        self._link = Link(source, prepare, self._publish_all, on_failure, max_outage_seconds, relay=relay)
        self._link.start()

    @property
    def count(self) -> int:
        """Number of messages that the broker has not confirmed."""
        return len(self._messages)

    @property
    def full_reason(self) -> str:
        """Why no more requests can be taken; empty if they can."""
        if len(self._messages) < MAX_MESSAGES and self._bytes < MAX_BYTES:
            return ""
        cause = self._link.blocked_reason or "no confirmation"
        return f"{len(self._messages)} replies ({self._bytes} bytes) wait for the broker: {cause}"

    @property
    def oldest_seconds(self) -> float:
        """Age of the oldest unconfirmed message."""
        with self._changed:
            oldest = next(iter(self._messages.values()), None)
        return 0.0 if oldest is None else time.monotonic() - oldest.added_at

    def add(self, messages: list[OutgoingMessage]) -> None:
        """Publish messages; returns at once."""
        with self._changed:
            for message in messages:
                self._messages[id(message)] = message
                self._bytes += len(message.message.body)
        self._link.call(lambda _: self._publish_all(messages))

    def wait_empty(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until all messages are confirmed; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._messages, timeout)

    def close(self) -> None:
        """Close the connection; messages without a confirmation may or may not have arrived."""
        self._link.close()

    def _publish_all(self, messages: Sequence[OutgoingMessage] = ()) -> None:
        for message in messages or list(self._messages.values()):  # a copy: other threads add messages
            self._publish(message)

    def _publish(self, outgoing: OutgoingMessage) -> None:
        properties = wire.properties(outgoing.message, outgoing.reason)
        if id(outgoing) in self._messages and outgoing.sent_on != self._link.connections:
            outgoing.sent_on = self._link.connections
            route, body = (outgoing.routing_key, outgoing.exchange), outgoing.message.body
            is_dead = bool(outgoing.reason)  # a client that is gone has no reply queue
            on_outcome = partial(self._on_outcome, outgoing)
            self._link.publish(route[0], body, properties, on_outcome, route[1], mandatory=is_dead)

    def _on_outcome(self, outgoing: OutgoingMessage, outcome: PublishOutcome) -> None:
        if outcome is PublishOutcome.UNKNOWN:
            return  # published again on the next connection
        has_passed = outgoing.deadline is not None and time.time() > outgoing.deadline
        if outcome is PublishOutcome.REJECTED and not has_passed:
            # The queue has no leader at present, or is declared again: it has no maximum length.
            outgoing.sent_on = 0
            self._link.call_later(_REJECTED_SECONDS, lambda: self._publish(outgoing))
            return
        with self._changed:
            if self._messages.pop(id(outgoing), None) is None:
                return
            self._bytes -= len(outgoing.message.body)
            self._changed.notify_all()
        outgoing.on_outcome(outcome)

    def refusal(self, outgoing: OutgoingMessage) -> str:
        """Return why the outcome of a message was ``IMPOSSIBLE``."""
        return self._link.refusal(outgoing.message.body, outgoing.exchange) or INEXPRESSIBLE
