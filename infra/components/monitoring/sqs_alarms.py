"""What wakes a person because of a queue in SQS; what all queues have stands in ``queue_alarms``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pulumi

from infra.components.monitoring.alarm import AlarmSpec


@dataclass(frozen=True)
class WatchedSqs:
    """Whose queue it is, and the name of its dead-letter queue."""

    service: str
    dead_name: pulumi.Input[str]


def alarms(queue: WatchedSqs) -> Iterator[AlarmSpec]:
    """Yield the alarms of one queue."""
    yield AlarmSpec(
        f"{queue.service}-queue-dead",
        f"A task of {queue.service} was begun too often, or failed with nobody to tell: it is in the "
        "dead-letter queue.",
        "AWS/SQS",
        "ApproximateNumberOfMessagesVisible",
        {"QueueName": queue.dead_name},
        "Maximum",
        at_least=1,
    )
