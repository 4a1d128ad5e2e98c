"""The queue of requests, as both workers and clients declare it."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    name: str
    max_deliveries: int = 20
    max_length: int = 100_000
