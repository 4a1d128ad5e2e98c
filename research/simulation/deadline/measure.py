"""Replay many jobs in one pool and sum the results by policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from lambdas.core.deadline.experience import Experience
from lambdas.core.deadline.model import DeadlinePolicy, Job
from market.rules import ticks
from research.simulation.deadline.bound import clairvoyant
from research.simulation.deadline.feasible import feasible
from research.simulation.deadline.pool import PoolRuns
from research.simulation.deadline.simulate import JobOutcome, simulate
from research.simulation.deadline.uncertainty import Draws, UncertaintyModel

LEARNING_STARTS = 5
"""Starts whose jobs are not counted; their observations are known to later jobs."""


@dataclass(slots=True)
class Sum:
    """Sums over the jobs of one kind and policy. Costs in On-Demand hours."""

    jobs: int = 0
    misses: int = 0
    cost: float = 0.0
    bound: float = 0.0
    on_demand_hours: float = 0.0
    spot_hours: float = 0.0
    starts: int = 0
    interruptions: int = 0

    def add(self, outcome: JobOutcome) -> None:
        """Add a job."""
        self.jobs += 1
        self.misses += outcome.late
        self.cost += outcome.cost
        self.on_demand_hours += outcome.on_demand_hours
        self.spot_hours += outcome.spot_hours
        self.starts += outcome.starts
        self.interruptions += outcome.interruptions


@dataclass(slots=True)
class DoubtSum(Sum):
    """The same sums in a world with uncertainty.

    ``avoidable``: missed, but feasible with restart overheads of middle length; ``by_luck``: feasible only
    with advance knowledge of short overheads; ``unsaid``: missed without a warning; ``said_hours``: sum of
    the warnings' lead times, and ``said_least``: the shortest; ``retracted``: met in spite of a warning.
    """

    avoidable: int = 0
    by_luck: int = 0
    unsaid: int = 0
    said_hours: float = 0.0
    said_least: float = math.inf
    retracted: int = 0


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
    """Replay every job from every start under every policy, in a world as declared.

    The jobs share restart time and Spot price. The policies have no experience: in a world as declared,
    observations would not change their estimates.
    """
    sums = {(job, name): Sum() for job in jobs for name in policies}
    shapes = {job: (ticks(job.compute), ticks(job.deadline)) for job in jobs}
    friendly = Draws(UncertaintyModel(), pool)
    for start in starts:
        bounds = clairvoyant(
            pool, start, ticks(jobs[0].restart_overhead), shapes.values(), jobs[0].spot_price
        )
        for job, shape in shapes.items():
            for name, policy in policies.items():
                sums[job, name].add(simulate(pool, start, job, policy, friendly))
                sums[job, name].bound += bounds[shape] / 60
    return sums


def learn(
    pool: PoolRuns, jobs: Sequence[Job], policy: DeadlinePolicy, uncertainty: UncertaintyModel
) -> Experience:
    """Return the experience of jobs in this pool, in a world of the same kind with other draws."""
    experience = Experience()
    draws = Draws(replace(uncertainty, seed=uncertainty.seed + 1), pool)
    for start in starts_in(pool, max(job.deadline for job in jobs), LEARNING_STARTS):
        for job in jobs:
            simulate(pool, start, job, policy, draws, experience)
    return experience


def measure_uncertainty(
    pool: PoolRuns,
    jobs: Sequence[Job],
    policies: Mapping[str, DeadlinePolicy],
    starts: Sequence[int],
    uncertainty: UncertaintyModel,
    *,
    learned: bool,
) -> dict[tuple[Job, str], DoubtSum]:
    """Replay every job from every start under every policy in a world with uncertainty.

    ``learned``: all have the experience of earlier jobs of the first policy; else each job is the first.
    """
    sums = {(job, name): DoubtSum() for job in jobs for name in policies}
    draws, middling = Draws(uncertainty, pool), Draws(replace(uncertainty, spread=0.0), pool)
    could: dict[tuple[Job, int], tuple[bool, bool]] = {}
    experience = learn(pool, jobs, next(iter(policies.values())), uncertainty) if learned else Experience()
    for (job, name), total in sums.items():
        for start in starts:
            outcome = simulate(pool, start, job, policies[name], draws, deepcopy(experience))
            total.add(outcome)
            if not outcome.late:
                total.retracted += bool(outcome.said_hours)
                continue
            total.unsaid += not outcome.said_hours
            total.said_hours += outcome.said_hours
            total.said_least = min(total.said_least, outcome.said_hours or math.inf)
            if (job, start) not in could:
                met = feasible(middling, start, job)
                could[job, start] = met, not met and uncertainty.spread > 0 and feasible(draws, start, job)
            avoidable, by_luck = could[job, start]
            total.avoidable += avoidable
            total.by_luck += by_luck
    return sums
