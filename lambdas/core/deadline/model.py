"""Model of a training job with a deadline: its state, and the choice of its instance.

Assumptions, here and in the replay:

- The job needs ``compute`` seconds of a running instance and must finish ``deadline`` seconds after its
  start, which is before its first instance.
- It holds one instance at a time. Every start, of Spot or On-Demand and from one to the other, takes
  ``restart_overhead`` seconds (boot, volume, restore) that are paid and make no progress.
- Progress is checkpointed: a move, or an interruption after a checkpoint, loses no more than the next restart
  overhead. The instance is lost at the tick at which its pool has no more capacity.
- Waiting without an instance is free.
- *Slack* is the time to the deadline minus the remaining compute: constant while an instance runs, less by a
  second per second while the job waits or boots. While it is ≥ ``restart_overhead``, On-Demand meets the
  deadline.
- Actual values may differ; ``safety`` reserves time for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Protocol

EPSILON: Final = 1e-6
"""Difference in seconds below which two times are equal."""


class JobMode(StrEnum):
    """The kind of instance that the job holds."""

    IDLE = "idle"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True)
class Job:
    """A job's plan, in seconds; ``spot_price`` is relative to On-Demand.

    ``tick`` is the time between decisions; ``checkpoint`` the maximum work that an interruption without a
    save loses.
    """

    compute: float
    deadline: float
    restart_overhead: float
    spot_price: float = 0.3
    tick: float = 60.0
    checkpoint: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a value out of range, or if On-Demand from the start would be late."""
        for name in ("compute", "deadline", "tick"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a number above 0, not {value:g} s")
        for name in ("restart_overhead", "checkpoint", "spot_price"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a number ≥ 0, not {value:g}")
        min_deadline = self.compute + self.restart_overhead
        if self.deadline < min_deadline:
            raise ValueError(
                "deadline must be at least compute + restart overhead = "
                f"{min_deadline / 3600:g} h, not {self.deadline / 3600:g} h"
            )


@dataclass(slots=True)
class DeadlineState:
    """State of a job at one time; times are seconds.

    Attributes:
        remaining_compute: Remaining compute.
        remaining_seconds: Time to the deadline.
        mode: Kind of instance that the job holds.
        remaining_boot: Time until that instance makes progress.
        is_spot_available: Whether the pool provides Spot below the On-Demand price.
        age: Time for which the pool has been observed to do so, or not to do so.
        price: Spot price relative to On-Demand.
        is_on_demand_unavailable: Whether an On-Demand launch is requested and fails.
    """

    remaining_compute: float
    remaining_seconds: float
    mode: JobMode
    remaining_boot: float
    is_spot_available: bool
    age: float
    price: float = 0.3
    is_on_demand_unavailable: bool = False

    @property
    def slack(self) -> float:
        """Time to the deadline minus the remaining compute."""
        return self.remaining_seconds - self.remaining_compute


@dataclass(frozen=True, slots=True)
class Choice:
    """The kind of instance to hold now.

    ``valid_seconds``: time for which the choice stays the same if the pool does and the job holds the choice;
    it saves decisions in a replay. ``is_late``: the deadline can no longer be met.
    """

    mode: JobMode
    valid_seconds: float = math.inf
    reason: str = ""
    is_late: bool = False


class DeadlinePolicy(Protocol):
    """A policy for jobs with a deadline."""

    name: ClassVar[str]

    def choose(self, job: Job, state: DeadlineState) -> Choice:
        """Return the choice of the policy; ``safety.decide`` then enforces the deadline. Pure."""
        ...
