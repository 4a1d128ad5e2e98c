"""The capacity policy of a training job with a deadline: applies a deadline policy to the state of a group.

The capacity of a pool can only be observed by launching an instance. So a pool that "provides Spot" is an
instance of the primary group; an idle job requests Spot and uses what launches; and while the job runs
On-Demand, Spot is requested only if the job would soon move to it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.memory import DEFAULT_BOOT_SECONDS
from lambdas.core.capacity.plan import Plan
from lambdas.core.capacity.policies.retries import not_trying_until
from lambdas.core.deadline.expected_cost import ExpectedJobCost
from lambdas.core.deadline.model import Choice, DeadlinePolicy, DeadlineState, Job, JobMode
from lambdas.core.deadline.record import MAX_LOST_WORK_SECONDS, PROMPT_LAUNCH_SECONDS
from lambdas.core.deadline.safety import POLL_SECONDS, DeadlineConstraints, decide
from lambdas.core.model import Action, Alarm, GroupRole, Instance, SetDesired

DEADLINE_LOST: Final = "deadline-lost"
PROGRESS_UNKNOWN: Final = "deadline-unknown"
ALARMS: Final = (DEADLINE_LOST, PROGRESS_UNKNOWN)
"""Alarms of a deadline: it cannot be met, or it is unknown because the job reports no progress."""

DEFAULT_RESTART_OVERHEAD_SECONDS: Final = DEFAULT_BOOT_SECONDS + 120.0
"""Default time from a request to the first step: a boot, and the rest of a volume's migration
(research/performance.md has 202 s for a whole migration in the rehearsal, most of it the boot)."""
DEFAULT_UNSAVED_SECONDS: Final = 600.0
"""Default maximum work that an interruption loses: ten minutes between two checkpoints."""
MEASUREMENT_TIMEOUT_SECONDS: Final = 1800.0
"""A job that works for so long without reporting progress counts as one without slack."""
STANDBY_SECONDS: Final = 1800.0
"""Maximum time for which a paid Spot Instance waits in standby until its pool is old enough to move to."""
_MAX_COMPUTE_SECONDS: Final = 1e9
_MIN_THROUGHPUT: Final = 0.01
"""Limits of measurements; beyond them the deadline cannot be met in any case."""
_STABLE_POLL_SECONDS: Final = 600.0
"""Maximum time between decisions about a running job."""


@dataclass(frozen=True, slots=True)
class ByDeadline:
    """Meet a group's deadline at the lowest expected cost.

    Until its progress is measured, the job uses Spot if available and On-Demand otherwise, to measure it. A
    job that works for ``MEASUREMENT_TIMEOUT_SECONDS`` without reporting progress counts as one without slack.
    If the deadline cannot be met, the policy raises an alarm and the job continues as fast as possible.
    """

    policy: DeadlinePolicy = field(default_factory=ExpectedJobCost)
    name: ClassVar[str] = "deadline"

    def plan(self, state: GroupState) -> Plan:
        """Return the capacity to hold now."""
        deadline = state.group.config.deadline
        if not state.group.target or not deadline:
            return Plan(0, "nothing to do", primary=0)
        if not state.memory.job.is_measured:
            return self._plan_unmeasured(state, deadline - state.now)
        constraints, job_state = _deadline_state(state, deadline)
        choice = decide(constraints, job_state, self.policy)
        on_demand, primary = self._capacity(state, constraints, job_state, choice)
        progress = _describe_progress(state, job_state)
        late = Alarm(DEADLINE_LOST, f"{progress}: the deadline cannot be met, continuing as fast as possible")
        next_run_at = _next_run_at(state, job_state, choice.valid_seconds)
        note = f", {not_trying_until(next_run_at)}" if on_demand and not primary else ""
        return Plan(
            on_demand=on_demand,
            reason=f"{progress}: {choice.reason}{note}",
            primary=primary,
            next_run_at=next_run_at,
            alarms=(late,) if choice.is_late else (),
            without_spot_seconds=math.inf,  # until the deadline, which has its own alarms
        )

    def _capacity(
        self, state: GroupState, constraints: DeadlineConstraints, job_state: DeadlineState, choice: Choice
    ) -> tuple[int, int]:
        """Return the On-Demand slots and the desired capacity of the primary group."""
        if choice.mode is JobMode.SPOT:
            return 0, 1
        is_spot_expensive = job_state.price >= 1
        if choice.mode is JobMode.IDLE:
            if is_spot_expensive:
                return 0, 0
            new_spot = replace(job_state, is_spot_available=True, age=0.0)
            if decide(constraints, new_spot, self.policy).mode is not JobMode.ON_DEMAND:
                return 0, 1
            # Spot that launches now would be too late, so waiting for it gains nothing.
        if is_spot_expensive:
            return 1, 0
        has_on_demand = any(state.is_up(i) for i in state.fallback)
        if choice.is_late and not has_on_demand:
            return 1, 1  # use the one that is ready first
        remaining_boot = constraints.estimates.restart_overhead
        if job_state.mode is JobMode.ON_DEMAND:
            remaining_boot = job_state.remaining_boot
        aged_spot = replace(
            job_state,
            mode=JobMode.ON_DEMAND,
            remaining_boot=remaining_boot,
            is_spot_available=True,
            age=max(job_state.age if job_state.is_spot_available else 0.0, STANDBY_SECONDS),
        )
        requested_at = state.memory.job.on_demand_requested_at
        is_delayed = requested_at is not None and state.now - requested_at > PROMPT_LAUNCH_SECONDS
        needs_spot = is_delayed or decide(constraints, aged_spot, self.policy).mode is JobMode.SPOT
        return 1, int(needs_spot)

    def _plan_unmeasured(self, state: GroupState, remaining_seconds: float) -> Plan:
        now, history = state.now, state.memory.history
        ready_since = max((i.ready_since or 0.0 for i in state.fallback + state.primary), default=0.0)
        # A job that reported nothing on one instance does not report on the next one either.
        was_unknown = PROGRESS_UNKNOWN in state.memory.active_alarms
        has_timed_out = ready_since > 0 and now - ready_since >= MEASUREMENT_TIMEOUT_SECONDS
        is_unknown = was_unknown or has_timed_out
        reason = "progress is not measured yet"
        alarms: list[Alarm] = []
        if is_unknown:
            reason = (
                'the job reports no progress ({"step": n, "steps": N} in $GPU_SPOT_TELL): no slack assumed'
            )
            alarms.append(Alarm(PROGRESS_UNKNOWN, reason))
        if remaining_seconds <= 0:
            alarms.append(
                Alarm(DEADLINE_LOST, f"the deadline passed {-remaining_seconds / 60:.0f} minutes ago")
            )
        has_spot = any(not state.is_interrupted(i) for i in state.primary)
        is_spot_expensive = state.spot_price >= 1
        is_spot_missing = is_spot_expensive or state.committed_fallback > 0 or history.capacity_unavailable
        on_demand = int(is_unknown or (is_spot_missing and not has_spot))
        has_on_demand = any(state.is_up(i) for i in state.fallback)
        return Plan(
            on_demand=on_demand,
            reason=reason,
            primary=int(not (on_demand and (has_on_demand or is_spot_expensive))),
            next_run_at=_next_multiple(now, POLL_SECONDS),
            alarms=tuple(alarms),
            without_spot_seconds=math.inf,
        )


def _deadline_state(state: GroupState, deadline: float) -> tuple[DeadlineConstraints, DeadlineState]:
    """Return the job and its state for the deadline policy."""
    now, record, price = state.now, state.memory.job, state.spot_price
    remaining_compute = min(max(1.0, record.remaining_seconds), _MAX_COMPUTE_SECONDS)
    remaining_seconds = deadline - now
    job = Job(
        compute=remaining_compute,
        deadline=max(remaining_seconds, remaining_compute + DEFAULT_RESTART_OVERHEAD_SECONDS),
        restart_overhead=DEFAULT_RESTART_OVERHEAD_SECONDS,
        spot_price=price,
        tick=POLL_SECONDS,
        checkpoint=min(MAX_LOST_WORK_SECONDS, max(DEFAULT_UNSAVED_SECONDS, record.max_lost_seconds)),
    )
    estimates = record.experience().estimate(job, record.best_rate / record.rate)
    min_throughput = max(estimates.min_throughput, _MIN_THROUGHPUT)
    constraints = DeadlineConstraints(job, replace(estimates, min_throughput=min_throughput))
    spot = [i for i in state.primary if not state.is_interrupted(i) and not i.is_terminating]
    mode, worker = _held_instance(state, spot)
    remaining_boot = 0.0
    if worker is not None and worker.ready_since is None:
        overhead = constraints.estimates.restart_overhead
        remaining_boot = max(POLL_SECONDS, overhead - (now - worker.launched_at))
    return constraints, DeadlineState(
        remaining_compute=remaining_compute,
        remaining_seconds=remaining_seconds,
        mode=mode,
        remaining_boot=remaining_boot,
        is_spot_available=(bool(spot) and price < 1) or mode is JobMode.SPOT,
        age=_pool_age(state, spot),
        price=price,
    )


def _held_instance(state: GroupState, spot: list[Instance]) -> tuple[JobMode, Instance | None]:
    """Return the instance that works on the job and its mode, else a booting one, On-Demand first."""
    fallback = [i for i in state.fallback if not state.is_interrupted(i)]
    candidates = [(JobMode.ON_DEMAND, i) for i in fallback] + [(JobMode.SPOT, i) for i in spot]
    working = [(mode, i) for mode, i in candidates if i.ready_since is not None]
    if working:
        return max(working, key=lambda candidate: (candidate[1].ready_since or 0.0, candidate[1].id))
    return candidates[0] if candidates else (JobMode.IDLE, None)


def _pool_age(state: GroupState, spot: list[Instance]) -> float:
    """Return for how many seconds the pool has provided Spot, or for how long none has been available."""
    now, history = state.now, state.memory.history
    if spot:
        oldest = min(spot, key=lambda i: (i.launched_at, i.id))
        since = history.record(history.pool_by_instance.get(oldest.id, oldest.pool)).since
        return max(0.0, now - min(oldest.launched_at, oldest.launched_at if since is None else since))
    return 0.0 if history.waiting_since is None else max(0.0, now - history.waiting_since)


def is_waiting(state: GroupState, actions: Iterable[Action], active_alarms: Collection[str]) -> bool:
    """Return whether a job with time until its deadline waits for Spot, without requesting On-Demand."""
    has_fallback_change = any(
        isinstance(action, SetDesired) and action.group_role is GroupRole.FALLBACK for action in actions
    )
    is_late = any(alarm in active_alarms for alarm in ALARMS)
    is_empty = not (has_fallback_change or state.primary or state.committed_fallback)
    return bool(state.group.config.deadline) and is_empty and not is_late


def _describe_progress(state: GroupState, job_state: DeadlineState) -> str:
    record = state.memory.job
    return (
        f"step {record.step} of {record.steps}, {job_state.remaining_compute / 3600:.1f} h of work and "
        f"{job_state.remaining_seconds / 3600:.1f} h of time remain"
    )


def _next_run_at(state: GroupState, job_state: DeadlineState, valid_seconds: float) -> float:
    """Return the time of the next decision, which the job's progress alone may change."""
    is_stable = (
        job_state.mode is not JobMode.IDLE
        and job_state.remaining_boot == 0
        and not state.memory.termination_deadlines
    )
    interval = _STABLE_POLL_SECONDS if is_stable else POLL_SECONDS
    return min(_next_multiple(state.now, interval), state.now + max(POLL_SECONDS, valid_seconds))


def _next_multiple(now: float, interval: float) -> float:
    """Return the next multiple of ``interval``, which runs in between do not postpone."""
    return math.floor(now / interval) * interval + interval
