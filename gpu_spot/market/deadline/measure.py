"""Replay many jobs in one pool and compare what the policies cost with the clairvoyant bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_spot.market.deadline.bound import clairvoyant
from gpu_spot.market.deadline.policies.model import DeadlinePolicy, Job
from gpu_spot.market.deadline.pool import PoolRuns
from gpu_spot.market.deadline.simulate import simulate
from gpu_spot.market.rules import ticks


@dataclass(slots=True)
class Sum:
    """The jobs of one kind and policy, added up. Costs in on-demand hours."""

    jobs: int = 0
    misses: int = 0
    cost: float = 0.0
    bound: float = 0.0
    on_demand_hours: float = 0.0
    spot_hours: float = 0.0
    starts: int = 0
    interruptions: int = 0


def starts_in(pool: PoolRuns, longest: float, count: int) -> list[int]:
    """Return ``count`` start ticks, evenly spread over the part from which ``longest`` seconds still fit."""
    room = pool.ticks - ticks(longest)
    if room < 0:
        raise ValueError(
            f"pool {pool.name} is {pool.ticks / 60:.1f} h long, "
            f"shorter than the deadline of {longest / 3600:g} h"
        )
    return [round(i * room / max(1, count - 1)) for i in range(count)]


def measure(
    pool: PoolRuns, jobs: Sequence[Job], policies: Mapping[str, DeadlinePolicy], starts: Sequence[int]
) -> dict[tuple[Job, str], Sum]:
    """Replay every job from every start under every policy; the jobs share change-over and spot price."""
    delays = {(job.changeover, job.spot_price) for job in jobs}
    if len(delays) != 1:
        raise ValueError(f"{len(delays)} pairs of change-over and spot price among the jobs, one is needed")
    sums = {(job, name): Sum() for job in jobs for name in policies}
    shapes = {job: (ticks(job.compute), ticks(job.deadline)) for job in jobs}
    for start in starts:
        bounds = clairvoyant(pool, start, ticks(jobs[0].changeover), shapes.values(), jobs[0].spot_price)
        for job, shape in shapes.items():
            for name, policy in policies.items():
                outcome, total = simulate(pool, start, job, policy), sums[job, name]
                total.jobs += 1
                total.misses += outcome.late
                total.cost += outcome.cost
                total.bound += bounds[shape] / 60
                total.on_demand_hours += outcome.on_demand_hours
                total.spot_hours += outcome.spot_hours
                total.starts += outcome.starts
                total.interruptions += outcome.interruptions
    return sums
