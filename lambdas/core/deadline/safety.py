"""The rules that no policy can break: spot is held only where the pool gives it, the deadline is kept.

A policy is asked about a job that ends earlier and is longer than the real one: what is kept in reserve is
taken off the time, and the work is counted at the slowest pace to be reckoned with. So it need not know of
any doubt, and what it calls slack is what it may spend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from lambdas.core.deadline.experience import Reckoning
from lambdas.core.deadline.model import (
    EPSILON,
    Choice,
    DeadlinePolicy,
    Job,
    JobMode,
    JobSituation,
)

LOOK_SECONDS: Final = 60.0
"""So often somebody looks who does it as often as AWS lets a schedule; a rarer look hears of a loss later."""


@dataclass(frozen=True)
class Prudence:
    """A job with what has to be reckoned with."""

    job: Job
    reckoning: Reckoning

    @cached_property
    def reserve(self) -> float:
        """Seconds of slack below which only on-demand is safe, and a running instance.

        A loss seen one look late, the work that it costs, a refusal of on-demand, a change-over.
        """
        late = self.job.tick - LOOK_SECONDS
        return late + self.job.checkpoint + self.reckoning.refusal + self.reckoning.longest

    @cached_property
    def planned(self) -> Job:
        """The job as the policy is told of it; where nothing is to spare, without slack."""
        compute, changeover = self.job.compute / self.reckoning.pace, self.reckoning.changeover
        deadline = max(self.job.deadline - (self.reserve - changeover), compute + changeover)
        return replace(self.job, compute=compute, deadline=deadline, changeover=changeover)

    def situation(self, state: JobSituation) -> JobSituation:
        """Return the situation as the policy is told of it."""
        left = state.left / self.reckoning.pace
        remaining = state.remaining - (self.reserve - self.reckoning.changeover)
        if left == state.left and remaining == state.remaining:
            return state
        return replace(state, left=left, remaining=remaining)

    def cannot_be_met(self, state: JobSituation) -> bool:
        """Return whether no choice meets the deadline any more at the pace of now and with the least boot."""
        known = self.reckoning
        boot = known.shortest
        if state.mode is not JobMode.IDLE:
            boot = max(0.0, state.boot_left - (known.changeover - known.shortest))
        return state.remaining < boot + state.left / known.likely_pace - EPSILON


def decide(prudence: Prudence, state: JobSituation, policy: DeadlinePolicy) -> Choice:
    """Return what to hold until the next look.

    Invariant: without a running instance the slack is at least the reserve, so that on-demand, asked for
    then, is in time. A running instance keeps the slack, so running spot is left to itself; waiting and
    booting spot go on only while the slack after the next tick still holds the reserve, and spot is started
    only where its longest boot leaves it. Where more has to be reckoned with than when spot was started, it
    is left for on-demand while that is sure to be in time.

    A deadline that cannot be met any more is said so, and the job goes on as fast as possible: it keeps what
    it holds, and takes on-demand where it holds nothing. Where on-demand is refused, it takes or keeps spot.
    """
    if state.mode is JobMode.SPOT and not state.up:
        raise ValueError("the job holds spot in a pool that gives none, report it as lost first")
    if prudence.cannot_be_met(state):
        mode = JobMode.ON_DEMAND if state.mode is JobMode.IDLE else state.mode
        return _unless_refused(Choice(mode, reason="the deadline cannot be met any more", late=True), state)
    return _unless_refused(_safe(prudence, prudence.situation(state), policy), state)


def _safe(prudence: Prudence, state: JobSituation, policy: DeadlinePolicy) -> Choice:
    job, longest = prudence.planned, prudence.reckoning.longest
    spare = state.slack - job.changeover
    choice = policy.choose(job, state)
    if choice.mode is JobMode.ON_DEMAND:
        return choice
    if choice.mode is JobMode.SPOT and state.up:
        if state.mode is JobMode.SPOT:
            needed = job.tick if state.boot_left > 0 else 0.0
            on_demand_may_be_late = spare + prudence.reserve < longest
            safe = spare >= needed - EPSILON or on_demand_may_be_late
        else:
            safe = spare >= longest - EPSILON
        return choice if safe else Choice(JobMode.ON_DEMAND, choice.hold, "too late to try spot")
    if spare < job.tick - EPSILON:
        return Choice(JobMode.ON_DEMAND, choice.hold, "last safe moment")
    safe_for = math.floor(spare / job.tick + EPSILON) * job.tick
    return Choice(JobMode.IDLE, min(choice.hold, safe_for), choice.reason)


def _unless_refused(choice: Choice, state: JobSituation) -> Choice:
    if choice.mode is not JobMode.ON_DEMAND or not state.refused:
        return choice
    mode = JobMode.SPOT if state.up else JobMode.IDLE
    return replace(choice, mode=mode, reason=f"{choice.reason}, on-demand is refused")
