"""The deadline policy ``expected-cost``: the choice with the lowest expected cost.

It depends on the remaining compute, the slack and the age of the pool's run. A pool that has provided Spot
only for minutes often stops soon, one that has for hours goes on; a pool that has just stopped often returns
soon. So waiting for Spot, starting it, and moving to it from On-Demand each require a minimum slack that
depends on this age and on the Spot price. The minimum slacks are precomputed (``thresholds``).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from lambdas.core.deadline.model import EPSILON, Choice, DeadlineState, Job, JobMode
from lambdas.core.deadline.thresholds import Row, Table, Thresholds, at, fitted


@dataclass(frozen=True)
class ExpectedJobCost:
    """Policy that applies the fitted table. It leaves Spot only when lost, and On-Demand only for Spot."""

    table: Table = field(default_factory=fitted, repr=False)
    name: ClassVar[str] = "expected-cost"

    def choose(self, job: Job, state: DeadlineState) -> Choice:
        """See ``DeadlinePolicy``."""
        if state.mode is JobMode.SPOT:
            return Choice(JobMode.SPOT, reason="until it is lost")
        thresholds = _thresholds(self.table, job.restart_overhead / 60, round(state.price, 2))
        if state.is_spot_available:
            if state.mode is JobMode.ON_DEMAND:
                return self._choose_on_on_demand(thresholds, job, state)
            return self._choose_while_idle(thresholds, job, state)
        if state.mode is JobMode.ON_DEMAND:
            return Choice(JobMode.ON_DEMAND, reason="no spot")
        bin_, edge = _bin(self.table.grid.down, state.age)
        min_slack = self._min_slack(thresholds.wait[bin_], state)
        if state.slack < min_slack - EPSILON:
            return Choice(JobMode.ON_DEMAND, reason="slack too small to wait for spot")
        return Choice(JobMode.IDLE, min(edge, _seconds_until_below(min_slack, job, state)), "waits for spot")

    def _choose_while_idle(self, thresholds: Thresholds, job: Job, state: DeadlineState) -> Choice:
        bin_, edge = _bin(self.table.grid.up, state.age)
        min_slack = self._min_slack(thresholds.ripen[bin_], state)
        if state.slack >= min_slack - EPSILON:
            valid_seconds = min(edge, _seconds_until_below(min_slack, job, state))
            return Choice(JobMode.IDLE, valid_seconds, "waits for the pool to age")
        if state.slack >= self._min_slack(thresholds.spot[bin_], state) - EPSILON:
            return Choice(JobMode.SPOT, reason="spot")
        return Choice(JobMode.ON_DEMAND, reason="slack too small for a pool of this age")

    def _choose_on_on_demand(self, thresholds: Thresholds, job: Job, state: DeadlineState) -> Choice:
        bin_, edge = _bin(self.table.grid.up, state.age)
        row = thresholds.move[bin_]
        if state.slack >= self._min_slack(row, state) - EPSILON:
            return Choice(JobMode.SPOT, reason="the pool is old enough for the slack")
        if state.remaining_boot > 0:
            return Choice(JobMode.ON_DEMAND, edge, "slack too small to move")
        valid_seconds = min(edge, self._seconds_until_reached(row, job, state))
        return Choice(JobMode.ON_DEMAND, valid_seconds, "slack too small to move")

    def _min_slack(self, row: Row, state: DeadlineState) -> float:
        """Return the minimum slack in seconds."""
        return 60 * at(self.table.grid.compute, row, state.remaining_compute / 60)

    def _seconds_until_reached(self, row: Row, job: Job, state: DeadlineState) -> float:
        """Return a time for which the slack stays below the threshold while the remaining compute shrinks."""
        points, remaining = self.table.grid.compute, state.remaining_compute / 60
        below = [point for point in points if point < remaining]
        if not below:
            return math.inf
        current, next_threshold = at(points, row, remaining), at(points, row, below[-1])
        span, slack = remaining - below[-1], state.slack / 60
        if next_threshold <= slack and current < math.inf:
            span *= (current - slack) / (current - next_threshold)
        return max(job.tick, 60 * span)


@lru_cache(maxsize=256)
def _thresholds(table: Table, minutes: float, price: float) -> Thresholds:
    return table.at(minutes, price)


def _bin(edges: Row, age: float) -> tuple[int, float]:
    """Return the bin of an age in seconds, and the seconds until the next bin."""
    index = bisect_right(edges, age / 60 + EPSILON)
    return index - 1, (60 * edges[index] - age if index < len(edges) else math.inf)


def _seconds_until_below(min_slack: float, job: Job, state: DeadlineState) -> float:
    """Return the time until the first tick at which a waiting job's slack is below ``min_slack``."""
    return (math.floor((state.slack - min_slack + EPSILON) / job.tick) + 1) * job.tick
