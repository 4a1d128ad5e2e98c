"""The queue of requests, as both workers and clients declare it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MAX_NAME_BYTES: Final = 255 - len(".replies.") - 32
"""AMQP's limit (0-9-1, ``shortstr``), less what the name of a reply queue has more."""


@dataclass(frozen=True)
class Queue:
    """A queue of requests, with a dead-letter queue.

    On RabbitMQ workers and clients both declare it (a quorum queue): the first creates it, and the broker
    refuses a declaration that differs. On SQS it must exist, and only ``name`` is used.

    Args:
        name: of the queue.
        max_deliveries: maximum deliveries of a request; then it is dead-lettered. Deliveries to workers that
            were lost count, because the request may have crashed them. Spot instances are lost for other
            reasons, too; 20 is RabbitMQ's default since 4.0.
        max_length: maximum number of waiting requests; more are rejected (`QueueFullError`), except for a few
            that are in transit when it fills: a quorum queue notifies publishers with a delay. 0: no limit.
            A Spot outage causes a long backlog, which AWS advises against. Source: Amazon MQ developer guide,
            "Quorum queues".

    Raises:
        ValueError: a broker would refuse a value, again at each new connection.
    """

    name: str
    max_deliveries: int = 20
    max_length: int = 100_000

    def __post_init__(self) -> None:
        if not 0 < len(self.name.encode()) <= _MAX_NAME_BYTES or self.name.startswith("amq."):
            limits = f"1 to {_MAX_NAME_BYTES} bytes, and not begin with 'amq.'"
            raise ValueError(f"a queue's name must have {limits}, not {self.name!r}")
        if self.max_deliveries < 1 or self.max_length < 0:
            limits = f"max_deliveries={self.max_deliveries}, max_length={self.max_length}"
            raise ValueError(
                f"queue {self.name!r}: at least one delivery and a length of 0 or more, not {limits}"
            )
