"""The declarations of queues and exchanges, identical for workers and clients.

Whichever connects first creates a queue; the broker refuses a declaration that differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Protocol

from spot_work.queues import Queue

REPLY_QUEUE_EXPIRES_SECONDS: Final = 1800
"""Time without a consumer after which RabbitMQ deletes a reply queue: longer than a broker restart."""


class Declaration(Protocol):
    """A call to the broker that confirms its completion."""

    def __call__(self, *, callback: Any) -> object:
        """Start the call; ``callback`` gets the broker's response."""
        ...


Declarations = Iterator[Declaration]
"""Calls to the broker; each is made after the one before has completed."""


def dead_letter_queue(queue: Queue) -> str:
    """Return the name of the dead-letter queue."""
    return f"{queue.name}.dead"


def cancellation_exchange(queue: Queue) -> str:
    """Return the name of the exchange that notifies all workers of cancelled requests."""
    return f"{queue.name}.withdrawn"


def request_queue(channel: Any, queue: Queue) -> Declarations:
    """Yield the declarations of a queue of requests and of what belongs to it."""
    yield partial(
        channel.queue_declare, dead_letter_queue(queue), durable=True, arguments={"x-queue-type": "quorum"}
    )
    yield partial(channel.exchange_declare, cancellation_exchange(queue), "fanout", durable=True)
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": queue.max_deliveries - 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead_letter_queue(queue),
        # A message leaves only after the dead-letter queue has confirmed it. Requires "reject-publish".
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    if queue.max_length:
        arguments["x-max-length"] = queue.max_length
    yield partial(channel.queue_declare, queue.name, durable=True, arguments=arguments)


def reply_queue(channel: Any, name: str) -> Declarations:
    """Yield the declaration of a client's reply queue, which survives a restart of the broker.

    RabbitMQ's direct reply-to does not: a reply is lost with the connection that waits for it.
    """
    arguments = {"x-queue-type": "classic", "x-expires": 1000 * REPLY_QUEUE_EXPIRES_SECONDS}
    yield partial(channel.queue_declare, name, durable=True, arguments=arguments)
