"""Data model of the scaler: the observation of a service, and the reasons of a decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from contracts.registry.item import Worker
from lambdas.core.scaling.batches import BatchesDone
from lambdas.core.scaling.throughput import Throughput, WorkDone

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
    LOG_UNKNOWN = "log-unknown"
    HTTP_UNKNOWN = "http-unknown"
    THROUGHPUT_UNKNOWN = "throughput-unknown"
    THROUGHPUT_STALE = "throughput-stale"

    @property
    def is_alarm(self) -> bool:
        """Whether an input is missing: the scaler does not scale in, and a person should investigate."""
        return self in _ALARMS


_ALARMS: Final = frozenset(
    {
        Reason.QUEUE_UNKNOWN,
        Reason.LOG_UNKNOWN,
        Reason.HTTP_UNKNOWN,
        Reason.THROUGHPUT_UNKNOWN,
        Reason.THROUGHPUT_STALE,
    }
)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a service in the interval that ended at ``ended_at`` (epoch seconds).

    Attributes:
        arrival_rate: requests a second that arrived; None if unknown.
        waiting: requests that wait; None if the source does not see them: then they are estimated.
        in_flight: requests that workers process; 0 if the source does not see them.
        oldest_seconds: age of the oldest waiting request; None if the source does not see it.
        start_rate: requests a second that workers took, or ended; None if the source does not see them.
        counts_ended: whether ``arrival_rate`` counts requests at their end: while all workers are busy, more
            may arrive.
        refused_rate: requests a second that were refused, because no worker took them in time.
        is_estimate: a part of the load is unknown, and counts as the worse case.
    """

    ended_at: float
    arrival_rate: float | None
    waiting: int | None = None
    in_flight: int = 0
    oldest_seconds: float | None = None
    start_rate: float | None = None
    counts_ended: bool = False
    refused_rate: float = 0.0
    is_estimate: bool = False

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        counts = (self.waiting or 0, self.in_flight)
        rates = (self.arrival_rate or 0.0, self.start_rate or 0.0, self.refused_rate)
        numbers = (self.ended_at, self.oldest_seconds or 0.0, *rates, *counts)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise ValueError("times, rates and counts of a load must be finite and 0 or more")


class LoadSource(Protocol):
    """What says how many requests arrive, and how long workers need for them.

    A service has a single source, its queue, its proxies or a request log, chosen in
    ``lambdas/aws/load_sources.py``.
    """

    @property
    def unknown(self) -> Reason:
        """The reason of a decision without this source's load."""
        ...

    def load(self, now: float) -> Load | None:
        """Return the load of the last interval; None if it is unknown or too old."""
        ...

    def work_done(
        self, now: float, workers: Mapping[str, Sequence[Worker]], throughput: Throughput
    ) -> Mapping[str, WorkDone]:
        """Return the completed work of the last interval by instance type.

        Args:
            now: epoch seconds.
            workers: ready workers by instance type.
            throughput: the throughput measured before.
        """
        ...

    def batches(self, now: float, workers: Mapping[str, Sequence[Worker]]) -> Mapping[str, BatchesDone]:
        """Return the batches of the last minute by instance type, of types whose workers report them."""
        ...


@dataclass(frozen=True, slots=True)
class LoadObservation:
    """The observed state of a service at ``now`` (epoch seconds).

    Attributes:
        target: the current target of the group, in workers.
        load: None if the load is unknown, for the reason ``unknown``, which an estimate has, too.
        ready: ready workers by instance type.
        booting: workers of the group that are not ready yet.
        work_done: completed work of the last minute by instance type.
        boot_seconds: measured time from a launch until its workers are ready.
        on_premises: ready workers on premises by host type.
        batches: batches of the last minute by instance type.
        is_spot_scarce: On-Demand instances replace missing Spot instances, and would do so for the next one.
        booting_seconds: mean time since the launch of those that boot; None if unknown.
    """

    now: float
    target: int
    load: Load | None
    ready: Mapping[str, int]
    booting: int
    work_done: Mapping[str, WorkDone]
    boot_seconds: float
    on_premises: Mapping[str, int] = field(default_factory=dict)
    is_spot_scarce: bool = False
    unknown: Reason = Reason.QUEUE_UNKNOWN
    batches: Mapping[str, BatchesDone] = field(default_factory=dict)
    booting_seconds: float | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        numbers = (self.now, self.boot_seconds, *(work.busy_seconds for work in self.work_done.values()))
        counts = (self.target, self.booting, *self.ready.values(), *self.on_premises.values())
        if not all(math.isfinite(number) and number >= 0 for number in (*numbers, *counts)):
            raise ValueError("times, rates and counts must be finite and 0 or more")

    @property
    def workers(self) -> int:
        """All ready workers."""
        return sum(self.ready.values()) + sum(self.on_premises.values())

    @property
    def waiting_seconds(self) -> float:
        """How long requests that were delivered to a busy worker waited, in the worst type."""
        return max((batches.waiting_seconds for batches in self.batches.values()), default=0.0)

    @property
    def busy_share(self) -> float:
        """Share of the last minute in which the ready workers were busy; 0 if unknown."""
        busy_seconds = sum(work.busy_seconds for work in self.work_done.values())
        return busy_seconds / (self.workers * POLL_SECONDS) if self.workers else 0.0
