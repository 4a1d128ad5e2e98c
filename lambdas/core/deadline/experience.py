"""Measurements of earlier jobs, and the estimates for the next one.

With fewer than ``MIN_SAMPLES`` samples, a pessimistic prior applies; from then on the worst sample plus a
quarter of the spread. On-Demand counts as always available after ``MIN_SAMPLES`` requests without a launch
delay (by the rule of three, fewer than one in ten is then delayed, at 95 %); after a single delay, at least
the prior applies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from contracts.stored import stored
from lambdas.core.deadline.model import Job

MIN_SAMPLES: Final = 30
PRIOR_RESTART_FACTOR: Final = 3.0
"""Prior maximum of a restart overhead, as a multiple of the planned one."""
PRIOR_LAUNCH_DELAY_SECONDS: Final = 5400.0
"""Prior maximum of the time for which On-Demand cannot be launched."""
MAX_LAUNCH_DELAY_SECONDS: Final = 86_400.0
"""Maximum launch delay to allow for: a longer or wrong one must not rule out Spot for good."""
PRIOR_THROUGHPUT: Final = 0.65
"""Prior minimum of the throughput, relative to the planned one."""
PRIOR_MEASURED_THROUGHPUT: Final = 0.85
"""Prior minimum if the plan is a measured rate, that of the slower half of the last hour. Assumed."""
_PLAN_WEIGHT: Final = 3
"""Weight of the planned restart overhead in the mean, in samples."""


@stored(keys="as named", is_open=True, has_defaults=True, is_empty_at_default=True)
@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """Count, range and total of a series of samples."""

    count: int = 0
    minimum: float = math.inf
    maximum: float = -math.inf
    total: float = 0.0

    def with_sample(self, value: float) -> SampleStatistics:
        """Return the statistics with one more sample."""
        return SampleStatistics(
            self.count + 1, min(self.minimum, value), max(self.maximum, value), self.total + value
        )

    def scaled(self, factor: float) -> SampleStatistics:
        """Return the statistics in another unit."""
        return SampleStatistics(self.count, self.minimum * factor, self.maximum * factor, self.total * factor)


@dataclass(frozen=True, slots=True)
class JobEstimates:
    """Estimates for a job; times are seconds, throughputs are relative to the plan.

    Attributes:
        restart_overhead: Mean restart overhead, with its estimated minimum and maximum.
        max_launch_delay: Maximum time for which On-Demand cannot be launched.
        min_throughput: Minimum throughput.
        likely_throughput: Current or mean throughput, whichever is higher.
    """

    restart_overhead: float
    min_restart_overhead: float
    max_restart_overhead: float
    max_launch_delay: float = 0.0
    min_throughput: float = 1.0
    likely_throughput: float = 1.0

    @classmethod
    def as_planned(cls, job: Job) -> JobEstimates:
        """Return the estimates without uncertainty: all as planned, On-Demand always available."""
        return cls(job.restart_overhead, job.restart_overhead, job.restart_overhead)


@dataclass(slots=True)
class Experience:
    """Measurements of earlier jobs.

    Attributes:
        restart_overheads: Restart overheads in seconds.
        launch_delays: Time for which each request for On-Demand was not fulfilled, in seconds; 0: none.
        throughputs: Throughput of each hour of work, relative to the plan.
        is_measured: Whether the plan is a measured rate.
    """

    restart_overheads: SampleStatistics = field(default_factory=SampleStatistics)
    launch_delays: SampleStatistics = field(default_factory=SampleStatistics)
    throughputs: SampleStatistics = field(default_factory=SampleStatistics)
    is_measured: bool = False

    def estimate(self, job: Job, throughput: float) -> JobEstimates:
        """Return the estimates for a job that currently makes progress at ``throughput``."""
        planned, measured = job.restart_overhead, self.restart_overheads
        if measured.count < MIN_SAMPLES:
            max_restart = PRIOR_RESTART_FACTOR * planned
        else:
            max_restart = _beyond(measured.maximum, measured.minimum)
        excess = measured.total - measured.count * planned
        mean = planned + excess / (_PLAN_WEIGHT + measured.count)
        restart_overhead = 60 * math.ceil(mean / 60 - 1e-6)
        delays, throughputs = self.launch_delays, self.throughputs
        is_always_available = delays.count >= MIN_SAMPLES and delays.maximum == 0
        min_throughput = PRIOR_MEASURED_THROUGHPUT if self.is_measured else PRIOR_THROUGHPUT
        likely_throughput = throughput
        if throughputs.count >= MIN_SAMPLES:
            min_throughput = _beyond(throughputs.minimum, throughputs.maximum)
            likely_throughput = max(throughput, throughputs.total / throughputs.count)
        return JobEstimates(
            restart_overhead=restart_overhead,
            min_restart_overhead=min(planned, measured.minimum),
            max_restart_overhead=max(max_restart, measured.maximum, restart_overhead),
            max_launch_delay=0.0
            if is_always_available
            else min(max(PRIOR_LAUNCH_DELAY_SECONDS, _beyond(delays.maximum, 0.0)), MAX_LAUNCH_DELAY_SECONDS),
            min_throughput=min(min_throughput, throughputs.minimum, 1.0),
            likely_throughput=likely_throughput,
        )


def _beyond(worst: float, best: float) -> float:
    """Return the worst value plus a quarter of the spread."""
    return worst + (worst - best) / 4
