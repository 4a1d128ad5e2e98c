"""What jobs have really met in a pool, and what the next one therefore has to reckon with.

Until ``ENOUGH`` has been seen of something, a prior holds that is worse than what is usual; from then on the
worst that was seen, and a quarter of the spread on top. On-demand that was never refused in ``ENOUGH``
requests is taken to be there (fewer than one in ten is refused then, at 95 %: the rule of three); after a
single refusal the prior holds at least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from contracts.stored import stored
from lambdas.core.deadline.model import Job

ENOUGH: Final = 30
PRIOR_LONGER: Final = 3.0
"""A change-over takes up to so many times what was told."""
PRIOR_REFUSAL: Final = 5400.0
"""On-demand is refused for up to so many seconds on end."""
PRIOR_PACE: Final = 0.65
"""Progress is at least this part of the plan."""
PRIOR_MEASURED_PACE: Final = 0.85
"""The same where the plan is no promise but the rate of the last hour's slower half: it has begun to hold.
Assumed."""
_TOLD: Final = 3
"""So many change-overs weighs what was told, in the mean."""


@stored(keys="as named", is_open=True, has_defaults=True, is_empty_at_default=True)
@dataclass(frozen=True, slots=True)
class Seen:
    """Some values, as far as they are remembered."""

    count: int = 0
    least: float = math.inf
    most: float = -math.inf
    total: float = 0.0

    def adding(self, value: float) -> Seen:
        """Return them with one more."""
        return Seen(self.count + 1, min(self.least, value), max(self.most, value), self.total + value)

    def scaled(self, factor: float) -> Seen:
        """Return them in another unit."""
        return Seen(self.count, self.least * factor, self.most * factor, self.total * factor)


@dataclass(frozen=True, slots=True)
class Reckoning:
    """What a job has to reckon with.

    In seconds: a change-over on average, at best and at worst, and a refusal of on-demand at worst. ``pace``:
    progress at worst, in parts of the plan; ``likely_pace``: as it is now or was on average, the better.
    """

    changeover: float
    shortest: float
    longest: float
    refusal: float = 0.0
    pace: float = 1.0
    likely_pace: float = 1.0

    @classmethod
    def told(cls, job: Job) -> Reckoning:
        """Return that all goes as told and on-demand can always be had."""
        return cls(job.changeover, job.changeover, job.changeover)


@dataclass(slots=True)
class Experience:
    """What the jobs of a pool have met, each as it happened.

    ``changeovers`` in seconds, ``refusals``: for how many seconds each request for on-demand was refused (0:
    granted at once), ``paces``: progress of each hour of work as a part of the plan. ``measured``: the plan
    is a rate that was measured.
    """

    changeovers: Seen = field(default_factory=Seen)
    refusals: Seen = field(default_factory=Seen)
    paces: Seen = field(default_factory=Seen)
    measured: bool = False

    def reckoning(self, job: Job, own_pace: float) -> Reckoning:
        """Return what a job has to reckon with that itself makes progress at ``own_pace``."""
        told, took, refused, paces = job.changeover, self.changeovers, self.refusals, self.paces
        longest = PRIOR_LONGER * told if took.count < ENOUGH else _beyond(took.most, took.least)
        mean = told + (took.total - took.count * told) / (_TOLD + took.count)
        changeover = 60 * math.ceil(mean / 60 - 1e-6)
        there = refused.count >= ENOUGH and refused.most == 0
        prior = PRIOR_MEASURED_PACE if self.measured else PRIOR_PACE
        pace = prior if paces.count < ENOUGH else _beyond(paces.least, paces.most)
        return Reckoning(
            changeover=changeover,
            shortest=min(told, took.least),
            longest=max(longest, took.most, changeover),
            refusal=0.0 if there else max(PRIOR_REFUSAL, _beyond(refused.most, 0.0)),
            pace=min(pace, paces.least, 1.0),
            likely_pace=own_pace if paces.count < ENOUGH else max(own_pace, paces.total / paces.count),
        )


def _beyond(worst: float, best: float) -> float:
    return worst + (worst - best) / 4
