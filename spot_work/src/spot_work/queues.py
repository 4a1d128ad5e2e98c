"""A queue as both ends declare it, so that whoever comes first makes it, and a difference is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

ANSWERS_LAST_SECONDS: Final = 1800
"""A client's queue of answers goes when nobody has read it for so long: longer than a broker's restart."""


class Declaration(Protocol):
    """A call to the broker that says when it was carried out."""

    def __call__(self, *, callback: Any) -> object:
        """Begin it; ``callback`` gets the broker's answer."""
        ...


Declarations = Iterator[Declaration]
"""Calls to the broker, one after another: the next is made when the one before was carried out."""


@dataclass(frozen=True)
class Queue:
    """A queue of requests, replicated (a quorum queue), with a second one, ``<name>.dead``, for what fails.

    Args:
        name: of the queue.
        tries: how often a request may be begun. The loss of a worker counts as a try, so that one that kills
            its workers ends; on spot instances others are lost, too, and 20 is RabbitMQ's own default.
        most: requests that may wait; those after them are refused (`QueueFullError`), but for the few that
            are on their way when it fills: a quorum queue tells publishers late. 0: no limit. AWS advises
            against quorum queues for long backlogs (Amazon MQ guide, "Quorum queues"); a spot outage is one.
    """

    name: str
    tries: int = 20
    most: int = 100_000

    @property
    def dead(self) -> str:
        """Where requests go that failed without a reader of answers, or too often."""
        return f"{self.name}.dead"

    @property
    def withdrawn(self) -> str:
        """The exchange by which clients tell all workers of requests that nobody waits for any more."""
        return f"{self.name}.withdrawn"

    def declare(self, channel: Any) -> Declarations:
        """Yield what makes the queue and what belongs to it, in this order."""
        yield partial(channel.queue_declare, self.dead, durable=True, arguments={"x-queue-type": "quorum"})
        yield partial(channel.exchange_declare, self.withdrawn, "fanout", durable=True)
        arguments: dict[str, Any] = {
            "x-queue-type": "quorum",
            "x-delivery-limit": self.tries - 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self.dead,
            # Confirmed into the second queue before it leaves this one; that needs to refuse when full.
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
        if self.most:
            arguments["x-max-length"] = self.most
        yield partial(channel.queue_declare, self.name, durable=True, arguments=arguments)


def declare_answers(channel: Any, name: str) -> Declarations:
    """Yield what makes a client's queue of answers: it outlives a broker's restart, and a client for a while.

    RabbitMQ's direct reply-to keeps nothing: an answer is gone with the connection that waits for it.
    """
    arguments = {"x-queue-type": "classic", "x-expires": 1000 * ANSWERS_LAST_SECONDS}
    yield partial(channel.queue_declare, name, durable=True, arguments=arguments)
