"""Replay of one job with a deadline in one pool, from event to event.

``policies.model`` defines the quantities, ``uncertainty`` the other events.

At each tick a Spot loss comes first, then the policy decides. Ticks in which neither the pool nor the
policy's choice can change are played together; ``tests/deadline`` proves that this changes no result.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from lambdas.core.deadline.experience import Experience, JobEstimates
from lambdas.core.deadline.model import EPSILON, DeadlinePolicy, DeadlineState, Job, JobMode
from lambdas.core.deadline.safety import DeadlineConstraints, decide
from market.rules import TICK_SECONDS, ticks
from research.simulation.deadline.pool import PoolRuns
from research.simulation.deadline.uncertainty import HOUR, Draws, UncertaintyModel


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The result of one job. ``cost`` is in On-Demand hours; ``late``: the deadline was missed.

    ``said_hours``: hours before the deadline of the first warning that it cannot be met; 0: none.
    """

    cost: float
    late: bool
    hours: float
    spot_hours: float
    on_demand_hours: float
    starts: int
    interruptions: int
    said_hours: float = 0.0


def simulate(
    pool: PoolRuns,
    start: int,
    job: Job,
    policy: DeadlinePolicy,
    draws: Draws | None = None,
    experience: Experience | None = None,
) -> JobOutcome:
    """Replay the job from tick ``start``; its times are rounded up to whole ticks of 60 s.

    Without ``draws`` the world is as declared; without ``experience`` the policy assumes that it is. The age
    of the pool's run is counted from the start at the earliest: unobserved time is unknown. Raises
    ``ValueError`` if the pool ends before the deadline.
    """
    length = ticks(job.deadline)
    if start < 0 or start + length > pool.ticks:
        raise ValueError(
            f"a job from tick {start} with deadline {length} does not fit into {pool.ticks} ticks"
        )
    return _Run(draws or Draws(UncertaintyModel(), pool), start, job, policy, experience).play()


class _Run:
    """One running job. Times are whole ticks, except ``remaining_seconds``: seconds of planned compute."""

    def __init__(
        self, draws: Draws, start: int, job: Job, policy: DeadlinePolicy, experience: Experience | None
    ) -> None:
        self.pool, self.job, self.policy, self.draws = draws.pool, job, policy, draws
        self.experience = experience
        self.start, self.now, self.end = start, start, start + ticks(job.deadline)
        self.remaining_seconds = ticks(job.compute) * TICK_SECONDS
        self.index = self.pool.index(start)
        self.run = self.pool.runs[self.index]
        self.pace, self.price = draws.pace(start), draws.price(start, job.spot_price)
        self.offered, self.offered_since = self._offers(), start
        self.change = self._next_change()
        self.mode, self.boot, self.booted, self.worked = JobMode.IDLE, 0, 0, 0
        self.refused_since: int | None = None
        self.progress = _Progress()
        self.spot: Counter[float] = Counter()
        self.on_demand = self.starts = self.interruptions = self.warned_at = 0
        self.state = DeadlineState(self.remaining_seconds, job.deadline, self.mode, 0.0, self.offered, 0.0)
        self.constraints = self._make_constraints()

    def play(self) -> JobOutcome:
        """Simulate until the work is done or the deadline has passed."""
        poll_ticks = ticks(self.job.tick)
        while self.remaining_seconds > EPSILON and self.now < self.end:
            self._market()
            after_look = (self.now - self.start) % poll_ticks
            self._pass(poll_ticks - after_look if after_look else self._poll())
        self._answered()
        spot_cost = sum(price * ticks_held for price, ticks_held in sorted(self.spot.items()))
        return JobOutcome(
            cost=(spot_cost + self.on_demand) / HOUR,
            late=self.remaining_seconds > EPSILON,
            hours=(self.now - self.start) / HOUR,
            spot_hours=self.spot.total() / HOUR,
            on_demand_hours=self.on_demand / HOUR,
            starts=self.starts,
            interruptions=self.interruptions,
            said_hours=self.warned_at / HOUR,
        )

    def _market(self) -> None:
        """Apply the market's events of this tick."""
        if self.now < self.change:
            return
        if self.now >= self.run.end:
            self.index += 1
            self.run = self.pool.runs[self.index]
            if self.mode is JobMode.SPOT and not self.run.up:
                self._lose()
        if self.now >= self.pace.end:
            self.pace = self.draws.pace(self.now)
        if self.now >= self.price.end:
            self.price = self.draws.price(self.now, self.job.spot_price)
        if self._offers() != self.offered:
            self.offered, self.offered_since = not self.offered, self.now
        self.change = self._next_change()

    def _next_change(self) -> int:
        return min(self.run.end, self.end, self.pace.end, self.price.end)

    def _offers(self) -> bool:
        """Return whether the pool has Spot capacity cheaper than On-Demand."""
        return self.run.up and self.price.value < 1

    def _lose(self) -> None:
        if self.job.checkpoint and not self.draws.saved(self.now):
            unsaved = self.worked % ticks(self.job.checkpoint)
            self.remaining_seconds += unsaved * TICK_SECONDS * self.pace.value
        self.mode, self.interruptions = JobMode.IDLE, self.interruptions + 1

    def _poll(self) -> int:
        """Apply the policy's choice; return the number of ticks for which it is valid."""
        state = self.state
        state.remaining_compute = self.remaining_seconds
        state.remaining_seconds = (self.end - self.now) * TICK_SECONDS
        state.mode, state.remaining_boot = self.mode, self._boot_left()
        state.is_spot_available = self.offered or self.mode is JobMode.SPOT
        state.age = (self.now - self.offered_since) * TICK_SECONDS
        state.price, state.is_on_demand_unavailable = self.price.value, False
        choice = decide(self.constraints, state, self.policy)
        if choice.mode is JobMode.ON_DEMAND and self.mode is not JobMode.ON_DEMAND:
            if self.draws.refused(self.now):
                state.is_on_demand_unavailable = True
                self.refused_since = self.now if self.refused_since is None else self.refused_since
                choice = decide(self.constraints, state, self.policy)
            else:
                self._answered(granted=True)
        elif self.refused_since is not None:
            self._answered()
        if choice.is_late and not self.warned_at:
            self.warned_at = self.end - self.now
        if choice.mode is not self.mode:
            self._begin(choice.mode)
            return 1
        if state.is_on_demand_unavailable:
            return 1
        return max(1, ticks(min(choice.valid_seconds, self.job.deadline)))

    def _boot_left(self) -> float:
        """Return the expected remaining boot seconds: an instance reports only that it is ready."""
        if self.mode is JobMode.IDLE or self.booted == self.boot:
            return 0.0
        return max(TICK_SECONDS, self.constraints.estimates.restart_overhead - self.booted * TICK_SECONDS)

    def _begin(self, mode: JobMode) -> None:
        self.mode, self.boot, self.booted, self.worked = mode, 0, 0, 0
        if mode is not JobMode.IDLE:
            self.boot = self.draws.restart_seconds(self.job.restart_overhead, mode, self.now)
            self.starts += 1

    def _answered(self, *, granted: bool = False) -> None:
        """Record how long On-Demand launches failed: until one succeeded or none was requested."""
        if self.experience is not None and (granted or self.refused_since is not None):
            since = self.now if self.refused_since is None else self.refused_since
            waited = (self.now - since) * TICK_SECONDS
            self.experience.launch_delays = self.experience.launch_delays.with_sample(waited)
            self.constraints = self._make_constraints()
        self.refused_since = None

    def _pass(self, span: int) -> None:
        """Advance by up to ``span`` ticks, fewer if something changes before."""
        span = min(span, self.change - self.now)
        if self.mode is not JobMode.IDLE:
            span = self._boots(span) if self.booted < self.boot else self._works(span)
            if self.mode is JobMode.SPOT:
                self.spot[self.price.value] += span
            else:
                self.on_demand += span
        self.now += span

    def _boots(self, span: int) -> int:
        span = min(span, self.boot - self.booted)
        self.booted += span
        if self.booted == self.boot and self.experience is not None:
            took = self.boot * TICK_SECONDS
            self.experience.restart_overheads = self.experience.restart_overheads.with_sample(took)
            self.constraints = self._make_constraints()
        return span

    def _works(self, span: int) -> int:
        a_tick = TICK_SECONDS * self.pace.value
        span = min(span, math.ceil(self.remaining_seconds / a_tick - EPSILON))
        self.remaining_seconds -= span * a_tick
        self.worked += span
        sample = self.progress.add(span, self.pace.value)
        if sample is not None and self.experience is not None:
            self.experience.throughputs = self.experience.throughputs.with_sample(sample)
            self.constraints = self._make_constraints()
        return span

    def _make_constraints(self) -> DeadlineConstraints:
        if self.experience is None:
            return DeadlineConstraints(self.job, JobEstimates.as_planned(self.job))
        return DeadlineConstraints(self.job, self.experience.estimate(self.job, self.progress.likely))


class _Progress:
    """The job's throughput, for each hour of its work."""

    def __init__(self) -> None:
        self.likely = 1.0
        self._hour, self._all = [0, 0.0], [0, 0.0]

    def add(self, worked: int, pace: float) -> float | None:
        """Count ticks of work; return the throughput of the hour that they complete."""
        for sums in (self._hour, self._all):
            sums[0] += worked
            sums[1] += worked * pace
        if self._hour[0] < HOUR:
            return None
        hour = self._hour[1] / self._hour[0]
        self.likely = max(hour, self._all[1] / self._all[0])
        self._hour = [0, 0.0]
        return hour
