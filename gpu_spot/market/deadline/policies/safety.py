"""The rules that no policy can break: spot is held only where the pool gives it, the deadline is kept."""

from __future__ import annotations

import math

from gpu_spot.market.deadline.policies.model import (
    EPSILON,
    Choice,
    DeadlinePolicy,
    Job,
    JobMode,
    JobSituation,
)


def decide(job: Job, state: JobSituation, policy: DeadlinePolicy) -> Choice:
    """Return what to hold until the next look.

    Invariant: without a running instance the slack is at least ``job.reserve``, so that on-demand, started
    then, is in time. A running instance keeps the slack, so running spot is left to itself; waiting and
    booting spot go on only while the slack after the next tick still holds the reserve, and spot is started
    only where its whole boot leaves it.
    """
    if state.mode is JobMode.SPOT and not state.up:
        raise ValueError("the job holds spot in a pool that gives none, report it as lost first")
    choice = policy.choose(job, state)
    if choice.mode is JobMode.ON_DEMAND:
        return choice
    spare = state.slack - job.reserve
    if choice.mode is JobMode.SPOT and state.up:
        if state.mode is JobMode.SPOT or spare >= job.changeover - EPSILON:
            return choice
        return Choice(JobMode.ON_DEMAND, choice.hold, "too late to try spot")
    if spare < job.tick - EPSILON:
        return Choice(JobMode.ON_DEMAND, choice.hold, "last safe moment")
    safe = math.floor(spare / job.tick + EPSILON) * job.tick
    return Choice(JobMode.IDLE, min(choice.hold, safe), choice.reason)
