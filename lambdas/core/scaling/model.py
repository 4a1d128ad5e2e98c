"""What the scaler sees of a service each minute, what it may do, and what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from contracts.registry.queue_state import Backlog

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
