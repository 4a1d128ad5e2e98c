"""What wakes a person because of a service's queue, by what the queue watcher tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from contracts import names
from infra.components.monitoring.alarm_spec import AlarmSpec, group_dimensions

FULL: Final = 0.8
"""How much of what it may hold a queue holds when somebody should look."""


@dataclass(frozen=True)
class QueueBounds:
    """A service's queue: how many may wait in it (0: any), and for how many seconds."""

    service: str
    most: int
    oldest_seconds: int


def alarms(stack: str, queue: QueueBounds) -> Iterator[AlarmSpec]:
    """Yield the alarms of one queue."""
    of = group_dimensions(stack, queue.service, names.SERVICE_QUEUES)
    name = f"{queue.service}-queue"
    yield AlarmSpec(
        f"{name}-unseen",
        f"For ten minutes nobody could see how the queue of {queue.service} stands; the queue watcher's log "
        "says why.",
        names.METRIC_NAMESPACE,
        names.METRIC_QUEUE_UNSEEN,
        of,
        "Minimum",
        at_least=1,
        periods=10,
        needed=10,
        silence="breaching",
    )
    yield AlarmSpec(
        f"{name}-old",
        f"A task of {queue.service} has waited for {queue.oldest_seconds} seconds, and others since.",
        names.METRIC_NAMESPACE,
        names.METRIC_QUEUE_OLDEST,
        of,
        "Maximum",
        at_least=queue.oldest_seconds,
        periods=5,
        needed=5,
    )
    yield AlarmSpec(
        f"{name}-unread",
        f"Tasks of {queue.service} have waited for 15 minutes and no worker reads them.",
        names.METRIC_NAMESPACE,
        names.METRIC_QUEUE_READERS,
        of,
        "Maximum",
        at_least=1,
        periods=15,
        needed=15,
        below=True,
        other=names.METRIC_QUEUE_READY,
        expression="IF(other > 0, value, 1)",
    )
    if queue.most:
        yield AlarmSpec(
            f"{name}-deep",
            f"{FULL:.0%} of the {queue.most} tasks that may wait for {queue.service} do; when all do, new "
            "ones are refused.",
            names.METRIC_NAMESPACE,
            names.METRIC_QUEUE_READY,
            of,
            "Maximum",
            at_least=max(1, int(FULL * queue.most)),
            periods=5,
            needed=5,
        )
