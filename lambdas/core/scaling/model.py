"""Data model of the scaler: the observation of a service, and the reasons of a decision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from contracts.registry.queue_state import QueueState

POLL_SECONDS: Final = 60.0
"""The scaler runs once a minute."""


class Reason(StrEnum):
    """Reason of a target; the values are part of log lines.

    ``scarce`` is a target by load while On-Demand instances replace missing Spot instances.
    """

    LOAD = "load"
    SCARCE = "scarce"
    COOLDOWN = "cooldown"
    FLOOR = "floor"
    CEILING = "ceiling"
    IDLE = "idle"
    WAKE = "wake"
    QUEUE_UNKNOWN = "queue-unknown"
    THROUGHPUT_UNKNOWN = "throughput-unknown"
    THROUGHPUT_STALE = "throughput-stale"

    @property
    def is_alarm(self) -> bool:
        """Whether an input is missing: the scaler does not scale in, and a person should investigate."""
        return self in _ALARMS


_ALARMS: Final = frozenset(
    {
        Reason.QUEUE_UNKNOWN,
        Reason.THROUGHPUT_UNKNOWN,
        Reason.THROUGHPUT_STALE,
    }
)


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Requests that workers of one instance type completed in the last minute, and the seconds spent."""

    requests: float
    busy_seconds: float


@dataclass(frozen=True, slots=True)
class LoadObservation:
    """The observed state of a service at ``now`` (epoch seconds).

    Attributes:
        target: the current target of the group, in workers.
        queue: None if the state of the queue is unknown.
        ready: ready workers by instance type.
        booting: workers of the group that are not ready yet.
        work_done: completed work of the last minute by instance type.
        boot_seconds: measured time from a launch until its workers are ready.
        on_premises: ready workers on premises by host type.
        is_spot_scarce: On-Demand instances replace missing Spot instances, and would do so for the next one.
    """

    now: float
    target: int
    queue: QueueState | None
    ready: Mapping[str, int]
    booting: int
    work_done: Mapping[str, WorkDone]
    boot_seconds: float
    on_premises: Mapping[str, int] = field(default_factory=dict)
    is_spot_scarce: bool = False

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        numbers = (self.now, self.boot_seconds, *(work.busy_seconds for work in self.work_done.values()))
        counts = (self.target, self.booting, *self.ready.values(), *self.on_premises.values())
        if not all(math.isfinite(number) and number >= 0 for number in (*numbers, *counts)):
            raise ValueError("times, rates and counts must be finite, 0 or more")
