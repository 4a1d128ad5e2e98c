"""Replay one job under a deadline in one pool, from change to change.

What the numbers mean is said in ``policies.model``. The controller sees the pool at every tick.

At each tick a lost spot instance goes first, then the policy looks. Ticks in which neither the pool nor the
policy's choice can change are played at once; ``tests/deadline`` proves that this changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpu_spot.market.deadline.policies.model import DeadlinePolicy, Job, Mode, State
from gpu_spot.market.deadline.policies.safety import decide
from gpu_spot.market.deadline.pool import PoolRuns
from gpu_spot.market.rules import TICK_SECONDS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one job came to. ``cost`` is in on-demand hours; ``late`` says that the deadline was missed."""

    cost: float
    late: bool
    hours: float
    spot_hours: float
    on_demand_hours: float
    starts: int
    interruptions: int


def simulate(
    pool: PoolRuns,
    start: int,
    job: Job,
    policy: DeadlinePolicy,
    *,
    history: int = 0,
    every_tick: bool = False,
) -> Outcome:
    """Replay the job from tick ``start``; its times are rounded up to whole ticks of 60 s.

    The age of the pool's run is counted from ``history`` ticks before the start at the earliest: what nobody
    has watched is not known. ``every_tick`` looks at every tick, for tests. Raises ``ValueError`` where the
    pool ends before the deadline.
    """
    length, left, boot = ticks_of(job.deadline), ticks_of(job.compute), ticks_of(job.changeover)
    if start < 0 or start + length > pool.ticks:
        raise ValueError(
            f"a job from tick {start} with deadline {length} does not fit into {pool.ticks} ticks"
        )
    now, end, known = start, start + length, max(0, start - history)
    index = pool.index(start)
    run = pool.runs[index]
    state = State(left * TICK_SECONDS, length * TICK_SECONDS, Mode.IDLE, 0.0, run.up, 0.0)
    mode, boot_left = Mode.IDLE, 0
    paid = dict.fromkeys(Mode, 0)
    starts = interruptions = 0
    while left > 0 and now < end:
        if now >= run.end:
            index += 1
            run = pool.runs[index]
            if mode is Mode.SPOT and not run.up:
                mode, boot_left, interruptions = Mode.IDLE, 0, interruptions + 1
        state.left, state.remaining = left * TICK_SECONDS, (end - now) * TICK_SECONDS
        state.mode, state.boot_left = mode, boot_left * TICK_SECONDS
        state.up, state.age = run.up, (now - max(run.start, known)) * TICK_SECONDS
        choice = decide(job, state, policy)
        span = min(run.end, end) - now
        if choice.mode is not mode:
            mode = choice.mode
            boot_left = 0 if mode is Mode.IDLE else boot
            starts += mode is not Mode.IDLE
            span = 1
        elif every_tick:
            span = 1
        elif choice.hold < math.inf:
            span = min(span, max(1, ticks_of(choice.hold)))
        if mode is not Mode.IDLE:
            span = min(span, boot_left + left)
            booted = min(span, boot_left)
            boot_left -= booted
            left -= span - booted
        paid[mode] += span
        now += span
    hour = 3600.0 / TICK_SECONDS
    return Outcome(
        cost=(paid[Mode.SPOT] * job.spot_price + paid[Mode.ON_DEMAND]) / hour,
        late=left > 0,
        hours=(now - start) / hour,
        spot_hours=paid[Mode.SPOT] / hour,
        on_demand_hours=paid[Mode.ON_DEMAND] / hour,
        starts=starts,
        interruptions=interruptions,
    )


def ticks_of(seconds: float) -> int:
    """Return the whole ticks after which ``seconds`` have passed."""
    return math.ceil(seconds / TICK_SECONDS - 1e-9)
