"""One training job under a deadline: what is known when its instance is chosen, and what is chosen.

Meaning of the numbers, here and in the replay:

- The job needs ``compute`` seconds of a running instance and must be done ``deadline`` seconds after its
  start; the clock runs from there, not from the first instance.
- It holds one instance at a time. Every start, of spot or of on-demand and also from one to the other, takes
  ``changeover`` seconds (boot, volume, restore) that are paid and bring no progress.
- Progress is checkpointed: a move loses nothing beyond the next change-over, and neither does an interruption
  before which the work was saved. The instance is gone at the tick at which the pool no longer has it.
- Waiting without an instance costs nothing.
- *Slack* is the time to the deadline less the compute left. A running instance keeps it; waiting and booting
  eat it second by second. While slack ≥ ``changeover``, on-demand still makes the deadline.
- All this as told. ``doubts`` says what may be otherwise, ``safety`` what is kept in reserve for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Protocol

EPSILON: Final = 1e-6
"""Seconds below which two times are the same."""


class JobMode(StrEnum):
    """What the job holds."""

    IDLE = "idle"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked for, in seconds; ``spot_price`` is a fraction of the on-demand price.

    ``tick`` is how often somebody looks; ``checkpoint``: so much work may be lost in an interruption before
    which nothing was saved.
    """

    compute: float
    deadline: float
    changeover: float
    spot_price: float = 0.3
    tick: float = 60.0
    checkpoint: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a value out of range, and where on-demand from the start would be late."""
        for name, least in (("compute", 0.0), ("deadline", 0.0), ("tick", 0.0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > least):
                raise ValueError(f"{name} is {value:g} s, a number above 0 is needed")
        for name in ("changeover", "checkpoint", "spot_price"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value:g}, a number ≥ 0 is needed")
        least = self.compute + self.changeover
        if self.deadline < least:
            raise ValueError(
                f"deadline is {self.deadline / 3600:g} h, at least compute + change-over = "
                f"{least / 3600:g} h is needed"
            )


@dataclass(slots=True)
class JobSituation:
    """The job at one look: ``left`` seconds of compute, ``remaining`` seconds to the deadline.

    ``boot_left`` seconds are missing until the held instance makes progress. ``up`` says whether the pool
    gives spot now that costs less than on-demand, ``price``, in parts of on-demand, and ``age`` for how many
    seconds it has been seen to do so (or not to do so). ``refused``: on-demand was asked for and refused now.
    """

    left: float
    remaining: float
    mode: JobMode
    boot_left: float
    up: bool
    age: float
    price: float = 0.3
    refused: bool = False

    @property
    def slack(self) -> float:
        """The time to the deadline less the compute left."""
        return self.remaining - self.left


@dataclass(frozen=True, slots=True)
class Choice:
    """What to hold now.

    ``hold`` spares looks in a replay: for that many seconds a look gives the same choice if the pool stays as
    it is and the job already held what was chosen. ``late``: the deadline cannot be met any more.
    """

    mode: JobMode
    hold: float = math.inf
    reason: str = ""
    late: bool = False


class DeadlinePolicy(Protocol):
    """A policy for jobs under a deadline."""

    name: ClassVar[str]

    def choose(self, job: Job, state: JobSituation) -> Choice:
        """Return what the policy wants; ``safety.decide`` keeps the deadline whatever it is. Pure."""
        ...
