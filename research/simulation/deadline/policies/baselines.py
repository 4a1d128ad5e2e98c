"""Baseline policies: On-Demand, greedy, and Uniform Progress in its two readings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from lambdas.core.deadline.model import EPSILON, Choice, DeadlineState, Job, JobMode


@dataclass(frozen=True, slots=True)
class AlwaysOnDemand:
    """On-Demand from start to end."""

    name: ClassVar[str] = "on-demand"

    def choose(self, job: Job, state: DeadlineState) -> Choice:
        """See ``DeadlinePolicy``."""
        return Choice(JobMode.ON_DEMAND, reason="always")


@dataclass(frozen=True, slots=True)
class Greedy:
    """Spot or wait; the safety rules start On-Demand at the last safe moment, and it stays."""

    name: ClassVar[str] = "greedy"

    def choose(self, job: Job, state: DeadlineState) -> Choice:
        """See ``DeadlinePolicy``."""
        if state.mode is JobMode.ON_DEMAND:
            return Choice(JobMode.ON_DEMAND, reason="stays to the end")
        return Choice(JobMode.SPOT if state.is_spot_available else JobMode.IDLE, reason="spot or wait")


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """Uniform Progress ("Can't Be Late", NSDI'24, section 5.2): never fall behind compute × time ÷ deadline.

    An idle job starts Spot whenever the pool has capacity, and runs on it until it is lost. An idle job
    behind the line starts On-Demand, until its progress is two restart overheads ahead. The paper's return
    from On-Demand to Spot has two readings: not before that either, or as soon as Spot is available
    (``at_once``). Two overheads ahead and without Spot, the paper's text stops On-Demand; the authors'
    simulator continues on it (``keep``), which costs less.
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
    """Uniform Progress that moves from On-Demand to Spot at once."""

    at_once: bool = True
    name: ClassVar[str] = "uniform-progress-at-once"


@dataclass(frozen=True, slots=True)
class UniformProgressKeep(UniformProgress):
    """Uniform Progress that moves to Spot at once and stops On-Demand only for Spot: its best reading."""

    at_once: bool = True
    keep: bool = True
    name: ClassVar[str] = "uniform-progress-keep"
