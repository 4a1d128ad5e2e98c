"""Alarms of an SQS queue, in addition to those of every queue (``monitoring/queue_alarms.py``)."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi

from infra.components.monitoring.alarm_spec import AlarmSpec


def queue_alarms(service: str, dead_letters: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of the queue of ``service``; ``dead_letters`` is the name of its dead-letter queue."""
    yield AlarmSpec(
        f"{service}-queue-dead-letters",
        f"The dead-letter queue of {service} has a message: it reached its maximum deliveries, or it failed "
        "and has no reply address.",
        "AWS/SQS",
        "ApproximateNumberOfMessagesVisible",
        {"QueueName": dead_letters},
        "Maximum",
        threshold=1,
        logical_name=f"{service}-queue-dead",
    )
