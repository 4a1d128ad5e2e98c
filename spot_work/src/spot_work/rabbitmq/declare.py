"""Queues as both ends declare them, so that whoever comes first makes them, and a difference is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, Protocol

from spot_work.queues import Queue

ANSWERS_LAST_SECONDS: Final = 1800
"""A client's queue of answers goes when nobody has read it for so long: longer than a broker's restart."""


class Declaration(Protocol):
    """A call to the broker that says when it was carried out."""

    def __call__(self, *, callback: Any) -> object:
        """Begin it; ``callback`` gets the broker's answer."""
        ...


Declarations = Iterator[Declaration]
"""Calls to the broker, one after another: the next is made when the one before was carried out."""


def dead(queue: Queue) -> str:
    """Return where requests go that failed without a reader of answers, or too often."""
    return f"{queue.name}.dead"


def withdrawn(queue: Queue) -> str:
    """Return the exchange by which clients tell all workers of requests that nobody waits for any more."""
    return f"{queue.name}.withdrawn"


def requests(channel: Any, queue: Queue) -> Declarations:
    """Yield what makes a queue of requests and what belongs to it, in this order."""
    yield partial(channel.queue_declare, dead(queue), durable=True, arguments={"x-queue-type": "quorum"})
    yield partial(channel.exchange_declare, withdrawn(queue), "fanout", durable=True)
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": queue.tries - 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead(queue),
        # Confirmed into the second queue before it leaves this one; that needs to refuse when full.
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    if queue.most:
        arguments["x-max-length"] = queue.most
    yield partial(channel.queue_declare, queue.name, durable=True, arguments=arguments)


def answers(channel: Any, name: str) -> Declarations:
    """Yield what makes a client's queue of answers: it outlives a broker's restart, and a client for a while.

    RabbitMQ's direct reply-to keeps nothing: an answer is gone with the connection that waits for it.
    """
    arguments = {"x-queue-type": "classic", "x-expires": 1000 * ANSWERS_LAST_SECONDS}
    yield partial(channel.queue_declare, name, durable=True, arguments=arguments)
