"""Ours: do what is cheapest on average, given the compute left, the slack and the age of the pool's run.

A pool that has just begun to give spot often stops within minutes, one that has done so for hours goes on;
a pool that has just stopped often gives again soon. So waiting for spot, taking it, and leaving on-demand for
it each need a slack that depends on that age, and on what spot saves. The slacks are solved for beforehand
(``thresholds``).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from lambdas.core.deadline.model import EPSILON, Choice, Job, JobMode, JobSituation
from lambdas.core.deadline.thresholds import Row, Table, Thresholds, at, fitted


@dataclass(frozen=True)
class ExpectedJobCost:
    """The fitted table as a policy. Spot is kept until it is lost, on-demand is left for spot only."""

    table: Table = field(default_factory=fitted, repr=False)
    name: ClassVar[str] = "expected-cost"

    def choose(self, job: Job, state: JobSituation) -> Choice:
        """See ``DeadlinePolicy``."""
        if state.mode is JobMode.SPOT:
            return Choice(JobMode.SPOT, reason="until it is lost")
        thresholds = _thresholds(self.table, job.changeover / 60, round(state.price, 2))
        if state.up:
            if state.mode is JobMode.ON_DEMAND:
                return self._move(thresholds, job, state)
            return self._take(thresholds, job, state)
        if state.mode is JobMode.ON_DEMAND:
            return Choice(JobMode.ON_DEMAND, reason="no spot")
        bin_, edge = _bin(self.table.grid.down, state.age)
        least = self._least(thresholds.wait[bin_], state)
        if state.slack < least - EPSILON:
            return Choice(JobMode.ON_DEMAND, reason="slack too small to wait for spot")
        return Choice(JobMode.IDLE, min(edge, _falls_below(least, job, state)), "waits for spot")

    def _take(self, thresholds: Thresholds, job: Job, state: JobSituation) -> Choice:
        bin_, edge = _bin(self.table.grid.up, state.age)
        ripen = self._least(thresholds.ripen[bin_], state)
        if state.slack >= ripen - EPSILON:
            return Choice(JobMode.IDLE, min(edge, _falls_below(ripen, job, state)), "the pool is too fresh")
        if state.slack >= self._least(thresholds.spot[bin_], state) - EPSILON:
            return Choice(JobMode.SPOT, reason="spot")
        return Choice(JobMode.ON_DEMAND, reason="slack too small for a pool of this age")

    def _move(self, thresholds: Thresholds, job: Job, state: JobSituation) -> Choice:
        bin_, edge = _bin(self.table.grid.up, state.age)
        row = thresholds.move[bin_]
        if state.slack >= self._least(row, state) - EPSILON:
            return Choice(JobMode.SPOT, reason="the pool is old enough for the slack")
        if state.boot_left > 0:
            return Choice(JobMode.ON_DEMAND, edge, "slack too small to move")
        return Choice(JobMode.ON_DEMAND, min(edge, self._reaches(row, job, state)), "slack too small to move")

    def _least(self, row: Row, state: JobSituation) -> float:
        """Return the least slack in seconds."""
        return 60 * at(self.table.grid.compute, row, state.left / 60)

    def _reaches(self, row: Row, job: Job, state: JobSituation) -> float:
        """Return for how long the slack is surely below the threshold while the compute left shrinks."""
        points, left = self.table.grid.compute, state.left / 60
        below = [point for point in points if point < left]
        if not below:
            return math.inf
        here, there = at(points, row, left), at(points, row, below[-1])
        span, slack = left - below[-1], state.slack / 60
        if there <= slack and here < math.inf:
            span *= (here - slack) / (here - there)
        return max(job.tick, 60 * span)


@lru_cache(maxsize=256)
def _thresholds(table: Table, minutes: float, price: float) -> Thresholds:
    return table.at(minutes, price)


def _bin(edges: Row, age: float) -> tuple[int, float]:
    """Return the bin of an age in seconds, and the seconds until the next."""
    index = bisect_right(edges, age / 60 + EPSILON)
    return index - 1, (60 * edges[index] - age if index < len(edges) else math.inf)


def _falls_below(least: float, job: Job, state: JobSituation) -> float:
    """Return after how long a waiting job's slack is below ``least``: at the first tick strictly below it."""
    return (math.floor((state.slack - least + EPSILON) / job.tick) + 1) * job.tick
