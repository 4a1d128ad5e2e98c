"""Alarms of a service's queue, on the metrics of the queue watcher."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from contracts import names
from infra.components.monitoring.alarm_spec import UNKNOWN, AlarmSpec, Condition, of_function

NEARLY_FULL: Final = 0.8
"""Share of a limit at which an alarm is raised."""


@dataclass(frozen=True)
class QueueLimits:
    """Limits of a service's queue. ``max_length`` counts ready messages; 0: unlimited."""

    service: str
    max_length: int
    max_message_age_seconds: int


def alarms(stack: str, queue: QueueLimits) -> Iterator[AlarmSpec]:
    """Yield the alarms of one queue."""
    metrics, name = of_function(stack, queue.service, names.SERVICE_QUEUES), f"{queue.service}-queue"
    yield AlarmSpec(
        f"{name}-unreachable",
        f"The queue watcher could not read the queue of {queue.service} for ten minutes; its log has the "
        "error.",
        metrics,
        names.METRIC_QUEUE_UNREACHABLE,
        UNKNOWN,
    )
    yield AlarmSpec(
        f"{name}-message-age",
        f"The oldest message of {queue.service} has waited for at least {queue.max_message_age_seconds} "
        "seconds during the last five minutes.",
        metrics,
        names.METRIC_QUEUE_OLDEST_MESSAGE_AGE,
        Condition("Maximum", queue.max_message_age_seconds, periods=5, datapoints=5),
    )
    yield AlarmSpec(
        f"{name}-no-consumers",
        f"Messages of {queue.service} have waited for 15 minutes, and the queue has no consumer.",
        metrics,
        names.METRIC_QUEUE_CONSUMERS,
        Condition("Maximum", periods=15, datapoints=15, below=True),
        second_metric=names.METRIC_QUEUE_READY,
        expression="IF(other > 0, value, 1)",
    )
    if queue.max_length:
        yield AlarmSpec(
            f"{name}-length",
            f"The queue of {queue.service} holds {NEARLY_FULL:.0%} of its maximum of {queue.max_length} "
            "messages; at the maximum it rejects new messages.",
            metrics,
            names.METRIC_QUEUE_READY,
            Condition("Maximum", max(1, int(NEARLY_FULL * queue.max_length)), periods=5, datapoints=5),
        )
