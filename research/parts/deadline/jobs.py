"""Jobs and policies that the deadline benchmark replays in one pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lambdas.core.deadline.expected_cost import ExpectedJobCost
from lambdas.core.deadline.model import DeadlinePolicy, Job
from lambdas.core.deadline.thresholds import parse
from market.supply.trace import PoolTrace
from research.simulation.deadline.policies import DEFAULT, build
from research.simulation.deadline.pool import PoolRuns

COMPUTE_HOURS = (24, 48)
RATIOS = (1.15, 1.3, 1.5, 2.0)
SPOT_PRICE = 0.3


@dataclass(frozen=True)
class Task:
    """One pool with one restart overhead; ``table`` is the policy's JSON, ``None``: the product's."""

    name: str
    trace: PoolTrace
    restart_minutes: int
    starts: int
    table: Mapping[str, Any] | None

    def jobs(self, pool: PoolRuns, **settings: float) -> list[tuple[float, Job]]:
        """Return the jobs that fit into the pool, each with its deadline ÷ compute.

        ``others`` are further fields of a job.
        """
        restart_seconds = self.restart_minutes * 60
        jobs = [
            (
                ratio,
                Job(hours * 3600, round(hours * ratio * 60) * 60, restart_seconds, SPOT_PRICE, **settings),
            )
            for hours in COMPUTE_HOURS
            for ratio in RATIOS
        ]
        return [(ratio, job) for ratio, job in jobs if job.deadline <= pool.ticks * 60]

    def policies(self, names: Sequence[str]) -> dict[str, DeadlinePolicy]:
        """Return these policies, ours with this task's table."""
        built: dict[str, DeadlinePolicy] = {name: build(name) for name in names}
        if self.table is not None:
            built[DEFAULT] = ExpectedJobCost(parse(self.table))
        return built
