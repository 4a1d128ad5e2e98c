"""Feasibility: the maximum work that a job can do in a pool with knowledge of the future."""

from __future__ import annotations

from collections import defaultdict

from lambdas.core.deadline.model import EPSILON, Job, JobMode
from market.rules import TICK_SECONDS, ticks
from research.simulation.deadline.uncertainty import Draws


def feasible(draws: Draws, start: int, job: Job) -> bool:
    """Return whether the job, started at tick ``start``, could have been done by its deadline at any cost.

    Forward over the ticks: the maximum work done without an instance, with Spot, and with On-Demand. A start
    subtracts its restart overhead. Work counts as saved at every tick, which errs only towards *feasible*. A
    running instance loses nothing by continuing, so a start is useful only where the instance ends.
    """
    pool, now, end = draws.pool, start, start + ticks(job.deadline)
    needed, done = ticks(job.compute) * TICK_SECONDS, 0.0
    running: dict[JobMode, float | None] = {JobMode.SPOT: None, JobMode.ON_DEMAND: None}
    booted: defaultdict[int, list[tuple[JobMode, float]]] = defaultdict(list)
    index = pool.index(start)
    pace = draws.pace(start)
    while now < end and done < needed - EPSILON:
        index += now >= pool.runs[index].end
        run = pool.runs[index]
        pace = draws.pace(now) if now >= pace.end else pace
        if not run.up:
            running[JobMode.SPOT] = None
        for mode, work in booted.pop(now, ()):
            running[mode] = max(work, running[mode] or 0.0)
        for mode in running:
            if run.up if mode is JobMode.SPOT else not draws.refused(now):
                ready = now + draws.restart_seconds(job.restart_overhead, mode, now)
                if mode is JobMode.ON_DEMAND or ready < run.end:
                    if ready == now:
                        running[mode] = max(done, running[mode] or 0.0)
                    else:
                        booted[ready].append((mode, done))
        for mode, so_far in running.items():
            if so_far is not None:
                running[mode] = so_far + TICK_SECONDS * pace.value
                done = max(done, so_far + TICK_SECONDS * pace.value)
        now += 1
    return done >= needed - EPSILON
