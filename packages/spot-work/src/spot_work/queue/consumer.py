"""The worker's side of a queue: the interface that each transport implements."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from spot_work.request import message
from spot_work.request.message import Message, Request


@dataclass(frozen=True)
class Delivery:
    """A request that was delivered to this worker and is not settled yet.

    ``handle`` identifies the delivery to its consumer: an AMQP delivery tag, an in-flight SQS message.
    ``received`` is the `Message` as it came, None if unknown: a function may change its value.
    """

    request: Request
    handle: Any
    received: Any = None

    def as_repeat(self) -> Delivery:
        """Return it with its request marked as a repeat, and with the value as it came."""
        value = self.request.value
        with contextlib.suppress(ValueError):  # of JSON that is too deep for this thread's stack
            value = message.read_value(self.received) if self.received else value
        return replace(self, request=replace(self.request, value=value, is_repeat=True))


@dataclass(frozen=True)
class Ack:
    """The acknowledgement of a delivery, with the reply to send first; None: no reply."""

    delivery: Delivery
    reply: Message | None = None


class RequestConsumer(Protocol):
    """Receives requests from a queue and settles them: acknowledges, requeues or dead-letters each.

    The queue redelivers a request whose worker is lost before it settles it.
    """

    is_connected: threading.Event
    """Set once requests can be delivered."""

    stopped_reason: str
    """Why no requests are taken at present; empty if they are."""

    max_batches_ahead: int
    """Batches that may be delivered ahead of short ones; 1 where `hand_back` does nothing."""

    @property
    def ack_timeout_seconds(self) -> float | None:
        """Time after which an unsettled request is delivered again; None, or without it: unknown."""

    @property
    def waiting_count(self) -> int:
        """Requests that have been delivered to this worker and not received."""

    @property
    def held_replies(self) -> int:
        """Number of replies that the queue has not confirmed."""

    def receive(self, timeout: float) -> Delivery | None:
        """Return the next request, or None if none arrives within ``timeout`` seconds.

        Raises:
            BrokerRefusedError: the broker refuses the connection.
            ConnectionError: the broker was unreachable for too long.
        """

    def set_prefetch(self, count: int) -> None:
        """Have at most ``count`` requests delivered and not settled from now on; 0: deliver none.

        Requests that are delivered already stay.
        """

    def hand_back(self) -> None:
        """Return the requests not received to the queue, and have none delivered until `set_prefetch`.

        Does nothing where the queue counts each delivery towards a limit. Safe in any thread.
        """

    def ack(self, acks: Sequence[Ack]) -> None:
        """Send replies, and acknowledge each request once the broker has confirmed its reply.

        Returns at once.
        """

    def requeue(self, deliveries: Sequence[Delivery], delay_seconds: float = 0.0) -> None:
        """Return requests to the queue after a delay, for other workers; without it once stopped."""

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Move a request to the dead-letter queue, with the reason."""

    def stop(self) -> None:
        """Stop receiving, and requeue the prefetched requests."""

    def close(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until all acknowledgements are confirmed, then close."""
