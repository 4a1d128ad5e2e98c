"""Comparison of deadline policies, with each trace as a separate zone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lambdas.core.deadline.model import DeadlinePolicy, Job
from market.supply.trace import load
from research.simulation.deadline.measure import Sum, measure, starts_in
from research.simulation.deadline.policies import DEFAULT
from research.simulation.deadline.pool import PoolRuns


@dataclass(frozen=True, slots=True)
class ZoneOutcome:
    """The result of the jobs of one policy in one trace (a file).

    ``cost`` and ``bound`` are means, as fractions of the cost of the same job on On-Demand alone; hours,
    starts and interruptions are means per job, ``misses`` counts the late jobs.
    """

    trace: str
    policy: str
    default: bool
    compute_hours: float
    deadline_hours: float
    delay_minutes: float
    jobs: int
    misses: int
    cost: float
    bound: float
    cost_vs_bound: float
    spot_hours: float
    on_demand_hours: float
    starts_per_job: float
    interruptions_per_job: float


def compare(
    paths: Iterable[Path], job: Job, policies: Mapping[str, DeadlinePolicy], starts: int
) -> Iterator[ZoneOutcome]:
    """Yield the result of each policy in each trace, replayed from ``starts`` evenly spread start times.

    Folders stand for their ``*.json``. Raises ``TraceError`` for a trace that cannot be read, and
    ``ValueError`` for one that is shorter than the deadline.
    """
    for file in _files(paths):
        pool = PoolRuns.of_trace(load([file])[0])
        sums = measure(pool, [job], policies, starts_in(pool, job.deadline, starts))
        for name in policies:
            yield _outcome(str(file), name, job, sums[job, name])


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the trace files; ``load`` reports missing ones."""
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else []
        yield from inside or [path]


def _outcome(trace: str, name: str, job: Job, total: Sum) -> ZoneOutcome:
    on_demand = (job.compute + job.restart_overhead) / 3600
    return ZoneOutcome(
        trace=trace,
        policy=name,
        default=name == DEFAULT,
        compute_hours=job.compute / 3600,
        deadline_hours=job.deadline / 3600,
        delay_minutes=job.restart_overhead / 60,
        jobs=total.jobs,
        misses=total.misses,
        cost=total.cost / total.jobs / on_demand,
        bound=total.bound / total.jobs / on_demand,
        cost_vs_bound=total.cost / total.bound if total.bound else 1.0,
        spot_hours=total.spot_hours / total.jobs,
        on_demand_hours=total.on_demand_hours / total.jobs,
        starts_per_job=total.starts / total.jobs,
        interruptions_per_job=total.interruptions / total.jobs,
    )
