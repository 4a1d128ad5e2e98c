"""Replay one job under a deadline in one pool, from change to change.

What the numbers mean is said in ``policies.model``. The controller sees the pool at every tick.

At each tick a lost spot instance goes first, then the policy looks. Ticks in which neither the pool nor the
policy's choice can change are played at once; ``tests/deadline`` proves that this changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpu_spot.market.deadline.policies.model import DeadlinePolicy, Job, JobMode, JobSituation
from gpu_spot.market.deadline.policies.safety import decide
from gpu_spot.market.deadline.pool import PoolRuns
from gpu_spot.market.rules import TICK_SECONDS, ticks


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What one job came to. ``cost`` is in on-demand hours; ``late`` says that the deadline was missed."""

    cost: float
    late: bool
    hours: float
    spot_hours: float
    on_demand_hours: float
    starts: int
    interruptions: int


def simulate(pool: PoolRuns, start: int, job: Job, policy: DeadlinePolicy) -> JobOutcome:
    """Replay the job from tick ``start``; its times are rounded up to whole ticks of 60 s.

    The age of the pool's run is counted from the start at the earliest: what nobody has watched is not known.
    Raises ``ValueError`` where the pool ends before the deadline.
    """
    length, left, boot = ticks(job.deadline), ticks(job.compute), ticks(job.changeover)
    if start < 0 or start + length > pool.ticks:
        raise ValueError(
            f"a job from tick {start} with deadline {length} does not fit into {pool.ticks} ticks"
        )
    now, end = start, start + length
    index = pool.index(start)
    run = pool.runs[index]
    state = JobSituation(left * TICK_SECONDS, length * TICK_SECONDS, JobMode.IDLE, 0.0, run.up, 0.0)
    mode, boot_left = JobMode.IDLE, 0
    paid = dict.fromkeys(JobMode, 0)
    starts = interruptions = 0
    while left > 0 and now < end:
        if now >= run.end:
            index += 1
            run = pool.runs[index]
            if mode is JobMode.SPOT and not run.up:
                mode, boot_left, interruptions = JobMode.IDLE, 0, interruptions + 1
        state.left, state.remaining = left * TICK_SECONDS, (end - now) * TICK_SECONDS
        state.mode, state.boot_left = mode, boot_left * TICK_SECONDS
        state.up, state.age = run.up, (now - max(run.start, start)) * TICK_SECONDS
        choice = decide(job, state, policy)
        span = min(run.end, end) - now
        if choice.mode is not mode:
            mode = choice.mode
            boot_left = 0 if mode is JobMode.IDLE else boot
            starts += mode is not JobMode.IDLE
            span = 1
        elif choice.hold < math.inf:
            span = min(span, max(1, ticks(choice.hold)))
        if mode is not JobMode.IDLE:
            span = min(span, boot_left + left)
            booted = min(span, boot_left)
            boot_left -= booted
            left -= span - booted
        paid[mode] += span
        now += span
    hour = 3600.0 / TICK_SECONDS
    return JobOutcome(
        cost=(paid[JobMode.SPOT] * job.spot_price + paid[JobMode.ON_DEMAND]) / hour,
        late=left > 0,
        hours=(now - start) / hour,
        spot_hours=paid[JobMode.SPOT] / hour,
        on_demand_hours=paid[JobMode.ON_DEMAND] / hour,
        starts=starts,
        interruptions=interruptions,
    )
