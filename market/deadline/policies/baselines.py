"""The policies that ours is compared with: on-demand, greedy, and Uniform Progress in its two readings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from lambdas.core.deadline.model import EPSILON, Choice, DeadlineState, Job, JobMode


@dataclass(frozen=True, slots=True)
class AlwaysOnDemand:
    """On-demand from the start to the end."""

    name: ClassVar[str] = "on-demand"

    def choose(self, job: Job, state: DeadlineState) -> Choice:
        """See ``DeadlinePolicy``."""
        return Choice(JobMode.ON_DEMAND, reason="always")


@dataclass(frozen=True, slots=True)
class Greedy:
    """Spot or wait; on-demand comes at the last safe moment, by the safety rules, and stays."""

    name: ClassVar[str] = "greedy"

    def choose(self, job: Job, state: DeadlineState) -> Choice:
        """See ``DeadlinePolicy``."""
        if state.mode is JobMode.ON_DEMAND:
            return Choice(JobMode.ON_DEMAND, reason="stays to the end")
        return Choice(JobMode.SPOT if state.is_spot_available else JobMode.IDLE, reason="spot or wait")


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """Uniform Progress ("Can't Be Late", NSDI'24, section 5.2): never fall behind compute × time ÷ deadline.

    Spot is taken whenever the job is idle and the pool gives it, and kept until it is lost. Idle and behind
    the line, on-demand is started and kept until the progress is two change-overs ahead of it. The paper's
    return from on-demand to spot can be read in two ways: not before that either, or as soon as there is spot
    (``at_once``). Two change-overs ahead and without spot, its text leaves on-demand; the authors' simulator
    keeps it (``keep``), which costs less.
    """

    at_once: bool = False
    keep: bool = False
    name: ClassVar[str] = "uniform-progress"

    def choose(self, job: Job, state: DeadlineState) -> Choice:
        """See ``DeadlinePolicy``."""
        if state.mode is JobMode.SPOT:
            return Choice(JobMode.SPOT, reason="until it is lost")
        pace = job.compute / job.deadline
        ahead = job.compute - state.remaining_compute - (job.deadline - state.remaining_seconds) * pace
        if state.mode is JobMode.ON_DEMAND:
            return self._on_demand(job, state, pace, ahead)
        if state.is_spot_available:
            return Choice(JobMode.SPOT, reason="spot")
        if ahead < -EPSILON:
            return Choice(JobMode.ON_DEMAND, job.tick, "behind uniform progress")
        return Choice(JobMode.IDLE, max(job.tick, ahead / pace), "not behind uniform progress")

    def _on_demand(self, job: Job, state: DeadlineState, pace: float, ahead: float) -> Choice:
        if state.is_spot_available and self.at_once:
            return Choice(JobMode.SPOT, reason="spot at once")
        missing = 2 * job.restart_overhead * pace - ahead
        if missing > EPSILON:
            wait = math.inf if pace >= 1 or state.remaining_boot > 0 else missing / (1 - pace)
            return Choice(JobMode.ON_DEMAND, max(job.tick, wait), "less than two change-overs ahead")
        if state.is_spot_available:
            return Choice(JobMode.SPOT, reason="two change-overs ahead")
        if self.keep:
            return Choice(JobMode.ON_DEMAND, reason="no spot")
        return Choice(JobMode.IDLE, job.tick, "two change-overs ahead")


@dataclass(frozen=True, slots=True)
class UniformProgressAtOnce(UniformProgress):
    """Uniform Progress that goes from on-demand to spot at once."""

    at_once: bool = True
    name: ClassVar[str] = "uniform-progress-at-once"


@dataclass(frozen=True, slots=True)
class UniformProgressKeep(UniformProgress):
    """Uniform Progress that goes to spot at once and leaves on-demand for nothing else: its best reading."""

    at_once: bool = True
    keep: bool = True
    name: ClassVar[str] = "uniform-progress-keep"
