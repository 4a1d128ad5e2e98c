"""The scaling decision: from an observation of a service to its target in workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from contracts.group.scaling_settings import Bounds
from lambdas.core.scaling.batches import WorkerSpeed
from lambdas.core.scaling.forecast import forecast
from lambdas.core.scaling.memory import ARRIVAL_MINUTES, COOLDOWN_SECONDS, ScalingMemory
from lambdas.core.scaling.model import POLL_SECONDS, Load, LoadObservation, Reason
from lambdas.core.scaling.staffing import LATE_SHARE, SCARCE_LATE_SHARE, Demand, min_workers, permitted_batch

THROUGHPUT_STALE_SECONDS: Final = 300.0
"""Measured throughput is stale if requests arrive but none completes for this long."""
IDLE_SECONDS: Final = ARRIVAL_MINUTES * POLL_SECONDS - 120.0
"""A service is idle only if no worker has reported a completed request for this long."""
SATURATED_SHARE: Final = 0.9
"""Share of busy time from which requests counted at their end may be fewer than those that arrive."""
SATURATED_GROWTH: Final = 1.5
"""Workers desired then, as a multiple of the ready ones; again when those are ready."""
MIN_RELEASE_SECONDS: Final = THROUGHPUT_STALE_SECONDS + POLL_SECONDS
"""A worker is not released sooner than that: stale throughput is noticed before."""
CONTRADICTED_SHARE: Final = 0.5
"""Share of the arrivals that workers' reports prove below which the measured ones are wrong."""
_MIN_DECISIONS: Final = 0.9 * COOLDOWN_SECONDS / POLL_SECONDS
"""Decisions within the cooldown that scale-in requires; after an outage of the scaler there are fewer."""


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """The target of a group in workers.

    Attributes:
        desired: the workers that the load alone requires; None if unknown.
        expected_rate: expected requests a second; 0 if unknown.
        worker_rate: requests a second that a worker of the group completes, in the batches that the wait
            permits; 0 if unknown.
    """

    target: int
    reasons: tuple[Reason, ...]
    memory: ScalingMemory
    desired: int | None = None
    expected_rate: float = 0.0
    worker_rate: float = 0.0

    @property
    def is_alarm(self) -> bool:
        """Whether a reason needs a person's attention."""
        return any(reason.is_alarm for reason in self.reasons)


def decide(observation: LoadObservation, bounds: Bounds, memory: ScalingMemory) -> ScalingDecision:
    """Return the target of the group; idempotent within a minute.

    Scale-out is immediate. Scale-in requires that no more workers were desired for as long as a launch takes
    to be ready, that nothing was scaled out during `COOLDOWN_SECONDS`, and that all inputs are known.

    Invariant: a missing input never lowers the target.
    """
    now = observation.now
    load = observation.load
    memory = memory.update(observation, bounds.wait_seconds)
    missing_inputs = _missing_inputs(observation, memory)
    if load is None:
        return _within_bounds(observation, bounds, memory, None, missing_inputs)
    if _is_idle(memory, load, now):
        return _within_bounds(observation, bounds, memory, 0, missing_inputs)
    speed = memory.batch_times.speed(memory.throughput, observation.ready)
    if speed is None:
        desired = observation.target or 1  # there is load: one worker is needed to measure throughput
        return _within_bounds(observation, bounds, memory, desired, missing_inputs)
    lead_seconds = observation.boot_seconds + POLL_SECONDS
    expected_rate = forecast(memory.arrivals, memory.profile, memory.dispersion, now, now + 2 * lead_seconds)
    if load.is_estimate or _is_disproved(memory):
        expected_rate = max(expected_rate, memory.proven_rate)
    size, _ = permitted_batch(speed, observation.workers, bounds.wait_seconds * memory.staffed_wait.factor)
    worker_rate = speed.rate(size)
    desired = _workers_for_load(observation, bounds, memory, load, speed, worker_rate, expected_rate)
    desired = max(desired, _workers_beyond(observation, load))
    return _within_bounds(observation, bounds, memory, desired, missing_inputs, expected_rate, worker_rate)


def _workers_beyond(observation: LoadObservation, load: Load) -> int:
    """Return the workers for a load that is only known to exceed what the ready ones complete; else 0."""
    if not load.counts_ended or observation.busy_share < SATURATED_SHARE:
        return 0
    return math.ceil(SATURATED_GROWTH * observation.workers)


def _workers_for_load(
    observation: LoadObservation,
    bounds: Bounds,
    memory: ScalingMemory,
    load: Load,
    speed: WorkerSpeed,
    worker_rate: float,
    expected_rate: float,
) -> int:
    """Return the minimum number of workers of the group for the allowed wait, after those on premises.

    A backlog is within the wait as long after workers ordered now are ready as they booted. Each that stays
    counts as capacity until then, also while it boots: no backlog is a reason for two launches.
    """
    on_premises_speed = memory.batch_times.speed(memory.throughput, observation.on_premises) or speed
    on_premises_rate = sum(observation.on_premises.values()) * on_premises_speed.rate(speed.max_size)
    lead_seconds = observation.boot_seconds + POLL_SECONDS
    ready_rate = sum(observation.ready.values()) * worker_rate + on_premises_rate
    waiting = _waiting(memory, load) + expected_rate * lead_seconds
    booted_seconds = observation.booting_seconds
    if booted_seconds is None:
        booted_seconds = observation.boot_seconds / 2

    def demand(workers: int) -> Demand:
        """Return the load from the time on at which workers ordered now are ready, if so many stay."""
        ready = min(workers, ready_rate / worker_rate)
        booting = min(workers - ready, observation.booting)
        capacity = ready * lead_seconds + booting * min(lead_seconds, POLL_SECONDS + booted_seconds)
        backlog = max(0.0, waiting - capacity * worker_rate)
        return Demand(expected_rate, backlog, lead_seconds, memory.dispersion)

    max_workers = bounds.maximum + int(on_premises_rate / worker_rate) + 1
    share = SCARCE_LATE_SHARE if observation.is_spot_scarce else LATE_SHARE
    wait = bounds.wait_seconds * memory.staffed_wait.factor
    total = min_workers(demand, speed, wait, max_workers, share)
    if bounds.headroom:
        spare = Demand(expected_rate * (1 + bounds.headroom), 0.0, lead_seconds, memory.dispersion)
        total = max(total, min_workers(lambda _: spare, speed, wait, max_workers))
    return max(1 if not observation.on_premises else 0, total - int(on_premises_rate / worker_rate))


def _within_bounds(
    observation: LoadObservation,
    bounds: Bounds,
    memory: ScalingMemory,
    desired: int | None,
    missing_inputs: tuple[Reason, ...],
    expected_rate: float = 0.0,
    worker_rate: float = 0.0,
) -> ScalingDecision:
    """Apply floors, cooldown and maximum: scale out at once, scale in after a whole cooldown."""
    current, floor = observation.target, bounds.floor(observation.now)
    reasons = list(missing_inputs)
    target_before_cooldown = current if desired is None else desired
    if missing_inputs:
        target_before_cooldown = max(target_before_cooldown, current)
    if target_before_cooldown < floor:
        target_before_cooldown = floor
        reasons.append(Reason.FLOOR)
    raised = target_before_cooldown > current or bool(missing_inputs)
    memory = memory.record_decision(observation.now, target_before_cooldown, raised=raised)
    target = target_before_cooldown
    if target_before_cooldown < current:
        target = min(current, _min_target(observation, memory))
        if target == current:
            reasons.append(Reason.COOLDOWN)
    if target > bounds.maximum:
        target = bounds.maximum
        reasons.append(Reason.CEILING)
    if desired == 0 and target == 0:
        reasons.append(Reason.IDLE)
    elif current == 0 and target > 0:
        reasons.append(Reason.WAKE)
    elif not reasons:
        reasons.append(Reason.SCARCE if observation.is_spot_scarce and worker_rate else Reason.LOAD)
    return ScalingDecision(target, tuple(reasons), memory, desired, expected_rate, worker_rate)


def _min_target(observation: LoadObservation, memory: ScalingMemory) -> int:
    """Return the workers that are not released yet: until they cost as much as their successors' boot."""
    now = observation.now
    if now - memory.raised_at < COOLDOWN_SECONDS or len(memory.desired) < _MIN_DECISIONS:
        return observation.target
    return memory.max_desired(now - max(MIN_RELEASE_SECONDS, observation.boot_seconds + POLL_SECONDS))


def _missing_inputs(observation: LoadObservation, memory: ScalingMemory) -> tuple[Reason, ...]:
    load = observation.load
    if load is None or load.is_estimate or _is_disproved(memory):
        return (observation.unknown,)
    working = observation.workers
    if load.arrival_rate and working and not memory.throughput.by_type:
        return (Reason.THROUGHPUT_UNKNOWN,)
    if load.arrival_rate and working and _is_stale(memory, observation.now):
        return (Reason.THROUGHPUT_STALE,)
    return ()


def _is_disproved(memory: ScalingMemory) -> bool:
    """Return whether the workers' reports contradict the measured arrivals."""
    return memory.arrival_rate < CONTRADICTED_SHARE * memory.proven_rate


def _is_stale(memory: ScalingMemory, now: float) -> bool:
    """Return whether requests kept arriving but none has completed for `THROUGHPUT_STALE_SECONDS`."""
    recent_rates = [rate for at, rate in memory.arrivals if now - at < THROUGHPUT_STALE_SECONDS]
    return now - memory.throughput.measured_at >= THROUGHPUT_STALE_SECONDS and all(
        rate > 0 for rate in recent_rates
    )


def _is_idle(memory: ScalingMemory, load: Load, now: float) -> bool:
    """Return whether no request waits or is in flight, and none has arrived or completed recently."""
    has_no_arrivals = (
        all(rate == 0 for _, rate in memory.arrivals) and len(memory.arrivals) >= ARRIVAL_MINUTES - 2
    )
    return (
        has_no_arrivals
        and _waiting(memory, load) + load.in_flight == 0
        and now - memory.throughput.measured_at >= IDLE_SECONDS
    )


def _waiting(memory: ScalingMemory, load: Load) -> float:
    """Return the waiting requests: those that the source sees, else the balance."""
    return memory.waiting_estimate.requests if load.waiting is None else load.waiting
