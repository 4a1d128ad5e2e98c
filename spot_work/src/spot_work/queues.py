"""The queue of requests, as workers and callers name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Queue:
    """A queue of requests, with a second one for what fails.

    RabbitMQ's is declared by both ends, so that whoever comes first makes it and a difference is refused: a
    replicated one (a quorum queue). One of SQS is there already, and knows its tries itself.

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
