"""What wakes a person because of a queue in SQS, beside what every queue has (``queue_alarms``)."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi

from infra.components.monitoring.alarm_spec import AlarmSpec


def of_queue(service: str, dead_letters: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of the queue of ``service``, whose dead-letter queue has that name."""
    yield AlarmSpec(
        f"{service}-queue-dead",
        f"A task of {service} was begun too often, or failed with nobody to tell: it is in the "
        "dead-letter queue.",
        "AWS/SQS",
        "ApproximateNumberOfMessagesVisible",
        {"QueueName": dead_letters},
        "Maximum",
        at_least=1,
    )
