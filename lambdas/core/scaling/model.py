"""What the scaler sees of a service each minute, what it may do, and what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lambdas.core.backlog import Backlog

LOOK_SECONDS: Final = 60.0
"""The scaler looks once a minute."""


class Reason(StrEnum):
    """Why the target is what it is; ``rings`` says which of them somebody must hear of.

    ``scarce`` is by the load, too, while on-demand stands in for spot.
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
    def rings(self) -> bool:
        """Whether what the scaler needs to know is missing: it scales in no more, and people must look."""
        return self in _RINGING


_RINGING: Final = frozenset(
    {
        Reason.QUEUE_UNKNOWN,
        Reason.THROUGHPUT_UNKNOWN,
        Reason.THROUGHPUT_STALE,
    }
)


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What workers of one instance type did in the last minute: requests ended, seconds spent on them."""

    requests: float
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadObservation:
    """A service at ``now`` (epoch seconds).

    ``target`` are the workers that its group is asked for. ``queue`` tells what comes and what waits,
    None where nobody told. ``ready`` are the workers at work by instance type, ``elsewhere`` those on
    premises by host type; ``booting`` are the group's workers that are not ready yet. ``boot_seconds`` is how
    long a launch was seen to take until its workers are ready. ``scarce``: on-demand instances stand in for
    spot, and so would the next one.
    """

    now: float
    target: int
    queue: Backlog | None
    ready: Mapping[str, int]
    booting: int
    served: Mapping[str, WorkDone]
    boot_seconds: float
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    scarce: bool = False

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what no service can be like."""
        numbers = (self.now, self.boot_seconds, *(s.seconds for s in self.served.values()))
        counts = (self.target, self.booting, *self.ready.values(), *self.elsewhere.values())
        if not all(math.isfinite(n) and n >= 0 for n in (*numbers, *counts)):
            raise ValueError("times, rates and counts must be finite, 0 or more")


@dataclass(frozen=True, slots=True)
class Floor:
    """At least ``workers`` between two times of some days, in minutes after midnight UTC; Monday is 0."""

    workers: int
    begin: int
    end: int
    days: frozenset[int] = frozenset(range(7))

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a time that no day has."""
        if not 0 <= self.begin < self.end <= 1440 or self.workers < 0 or not self.days <= set(range(7)):
            raise ValueError(
                f"floor of {self.workers} from minute {self.begin} to {self.end} is no time of a day"
            )


@dataclass(frozen=True, slots=True)
class Bounds:
    """What people allow: ``wait_seconds`` is what one request in a hundred may wait for a worker.

    ``minimum`` 0 allows a service that nobody asks anything to have no worker.
    """

    wait_seconds: float
    minimum: int
    maximum: int
    floors: tuple[Floor, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for bounds that leave no room."""
        if not 1 <= self.wait_seconds <= 3600:
            raise ValueError(f"wait_seconds is {self.wait_seconds:g}, 1 to 3600 is allowed")
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise ValueError(f"minimum {self.minimum}, maximum {self.maximum}: 0 ≤ minimum ≤ maximum ≥ 1")

    def floor(self, now: float) -> int:
        """Return the least target at this time."""
        day, minute = (int(now // 86400) + 3) % 7, int(now % 86400 // 60)  # the epoch began on a Thursday
        due = (f.workers for f in self.floors if day in f.days and f.begin <= minute < f.end)
        return min(self.maximum, max(self.minimum, *due, 0))
