"""Safety rules for all deadline policies: Spot only while the pool provides it, and the deadline is met.

A policy decides on a job with an earlier deadline and more work than the real one: the reserve is deducted
from the time, and the work is estimated at the minimum throughput. So a policy needs no model of uncertainty,
and its slack is time that it may spend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from lambdas.core.deadline.experience import JobEstimates
from lambdas.core.deadline.model import EPSILON, Choice, DeadlinePolicy, DeadlineState, Job, JobMode

POLL_SECONDS: Final = 60.0
"""Minimum interval of an AWS schedule; with a longer interval, a loss is detected later."""


@dataclass(frozen=True)
class DeadlineConstraints:
    """A job with the estimates that its choices must allow for."""

    job: Job
    estimates: JobEstimates

    @cached_property
    def reserve(self) -> float:
        """Seconds of slack below which only a running instance or On-Demand is safe.

        Covers a loss detected one decision late, the lost work, the delay of an On-Demand launch and a
        restart.
        """
        detection = self.job.tick - POLL_SECONDS
        estimates = self.estimates
        return detection + self.job.checkpoint + estimates.max_launch_delay + estimates.max_restart_overhead

    @cached_property
    def planning_job(self) -> Job:
        """The job as the policy sees it, with the reserve deducted from its deadline; slack is at least 0."""
        compute = self.job.compute / self.estimates.min_throughput
        overhead = self.estimates.restart_overhead
        deadline = max(self.job.deadline - (self.reserve - overhead), compute + overhead)
        return replace(self.job, compute=compute, deadline=deadline, restart_overhead=overhead)

    def planning_state(self, state: DeadlineState) -> DeadlineState:
        """Return the state as the policy sees it, with the reserve deducted from the remaining time."""
        remaining_compute = state.remaining_compute / self.estimates.min_throughput
        remaining_seconds = state.remaining_seconds - (self.reserve - self.estimates.restart_overhead)
        if (remaining_compute, remaining_seconds) == (state.remaining_compute, state.remaining_seconds):
            return state
        return replace(state, remaining_compute=remaining_compute, remaining_seconds=remaining_seconds)

    def is_missed(self, state: DeadlineState) -> bool:
        """Return whether no choice meets the deadline, at likely throughput and minimum restart overhead."""
        estimates = self.estimates
        boot = estimates.min_restart_overhead
        if state.mode is not JobMode.IDLE:
            boot = max(
                0.0, state.remaining_boot - (estimates.restart_overhead - estimates.min_restart_overhead)
            )
        return (
            state.remaining_seconds < boot + state.remaining_compute / estimates.likely_throughput - EPSILON
        )


def decide(constraints: DeadlineConstraints, state: DeadlineState, policy: DeadlinePolicy) -> Choice:
    """Return what to hold until the next decision.

    Invariant: without a running instance, the slack is at least the reserve, so On-Demand requested then is
        in
    time. A running instance keeps the slack constant, so running Spot continues. Waiting and booting Spot
    continue only while the slack at the next tick is at least the reserve, and Spot is started only if its
    maximum restart overhead leaves the reserve. If the estimates have become worse since Spot was started,
    the job moves to On-Demand while that is certain to be in time.

    If the deadline can no longer be met, the choice says so and the job continues as fast as possible: it
    keeps its instance, or starts On-Demand without one. While On-Demand is unavailable, it starts or keeps
    Spot.
    """
    if state.mode is JobMode.SPOT and not state.is_spot_available:
        raise ValueError("the job holds spot in a pool without spot capacity; report the loss first")
    if constraints.is_missed(state):
        mode = JobMode.ON_DEMAND if state.mode is JobMode.IDLE else state.mode
        choice = Choice(mode, reason="the deadline cannot be met any more", is_late=True)
        return _avoid_unavailable(choice, state)
    return _avoid_unavailable(_safe_choice(constraints, constraints.planning_state(state), policy), state)


def _safe_choice(constraints: DeadlineConstraints, state: DeadlineState, policy: DeadlinePolicy) -> Choice:
    """Return the policy's choice, or On-Demand if that choice is not safe."""
    job, max_overhead = constraints.planning_job, constraints.estimates.max_restart_overhead
    spare = state.slack - job.restart_overhead
    choice = policy.choose(job, state)
    if choice.mode is JobMode.ON_DEMAND:
        return choice
    if choice.mode is JobMode.SPOT and state.is_spot_available:
        if state.mode is JobMode.SPOT:
            needed = job.tick if state.remaining_boot > 0 else 0.0
            may_on_demand_be_late = spare + constraints.reserve < max_overhead
            is_safe = spare >= needed - EPSILON or may_on_demand_be_late
        else:
            is_safe = spare >= max_overhead - EPSILON
        return choice if is_safe else Choice(JobMode.ON_DEMAND, choice.valid_seconds, "too late to try spot")
    if spare < job.tick - EPSILON:
        return Choice(JobMode.ON_DEMAND, choice.valid_seconds, "last safe moment")
    safe_seconds = math.floor(spare / job.tick + EPSILON) * job.tick
    return Choice(JobMode.IDLE, min(choice.valid_seconds, safe_seconds), choice.reason)


def _avoid_unavailable(choice: Choice, state: DeadlineState) -> Choice:
    """Replace the choice of On-Demand while its launches fail."""
    if choice.mode is not JobMode.ON_DEMAND or not state.is_on_demand_unavailable:
        return choice
    mode = JobMode.SPOT if state.is_spot_available else JobMode.IDLE
    return replace(choice, mode=mode, reason=f"{choice.reason}, on-demand is unavailable")
