"""State of the scaler for one service; bounded in size, and safe to lose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from contracts import codec
from contracts.registry.batches import WINDOW_SECONDS
from contracts.stored import ContractError, Stored, stored
from lambdas.core.scaling.batches import BatchTimes
from lambdas.core.scaling.dispersion import Dispersion
from lambdas.core.scaling.model import POLL_SECONDS, Load, LoadObservation
from lambdas.core.scaling.profile import BINS, Profile
from lambdas.core.scaling.staffed_wait import StaffedWait
from lambdas.core.scaling.throughput import Throughput
from lambdas.core.scaling.waiting import WaitingEstimate

COOLDOWN_SECONDS: Final = 600.0
"""No worker is released within this long of a scale-out, or of a decision that lacked an input."""
ARRIVAL_MINUTES: Final = 15
"""Minutes of arrivals that the current load is estimated from."""


@dataclass(frozen=True, slots=True)
class ScalingMemory:
    """The learned state. Times are epoch seconds, rates requests a second.

    Attributes:
        arrivals: (time, rate) of the last minutes, oldest first.
        desired: (time, workers) of the last decisions, oldest first.
        raised_at: time of the last scale-out, or of the last decision that lacked an input.
        completed: (time, completed requests a second, requests that wait or are in work) of the last minutes,
            oldest first.
    """

    profile: Profile = field(default_factory=Profile)
    throughput: Throughput = field(default_factory=Throughput)
    staffed_wait: StaffedWait = field(default_factory=StaffedWait)
    dispersion: Dispersion = field(default_factory=Dispersion)
    arrivals: tuple[tuple[float, float], ...] = ()
    desired: tuple[tuple[float, int], ...] = ()
    waiting_estimate: WaitingEstimate = field(default_factory=WaitingEstimate)
    batch_times: BatchTimes = field(default_factory=BatchTimes)
    raised_at: float = 0.0
    completed: tuple[tuple[float, float, float], ...] = ()

    def update(self, observation: LoadObservation, wait: float) -> ScalingMemory:
        """Return the state after one minute.

        A request is late if it waits longer than ``wait`` seconds until a worker begins with it.
        """
        now, load = observation.now, observation.load
        throughput = self.throughput.update(now, observation.work_done)
        if load is None or (self.arrivals and now - self.arrivals[-1][0] < POLL_SECONDS / 2):
            return replace(self, throughput=throughput)
        batch_times = self.batch_times.update(observation.batches)
        recent = [a for a in self.arrivals if now - a[0] < ARRIVAL_MINUTES * POLL_SECONDS - 1]
        arrivals = tuple(recent if load.arrival_rate is None else [*recent, (now, load.arrival_rate)])
        waiting_estimate = self.waiting_estimate.update(
            load,
            observation.workers * (throughput.mean_rate(observation.ready) or 0.0),
            observation.busy_share,
            POLL_SECONDS * sum(rate for _, rate in arrivals),
        )
        memory = replace(
            self,
            throughput=throughput,
            batch_times=batch_times,
            arrivals=arrivals,
            waiting_estimate=waiting_estimate,
            completed=self._completed(now, load, observation),
        )
        if load.is_estimate or load.arrival_rate is None:
            return memory  # nothing is learned from what is assumed
        return replace(
            memory,
            profile=self.profile.update(now, load.arrival_rate),
            staffed_wait=self._staffed_wait(load, waiting_estimate, wait - observation.waiting_seconds),
            dispersion=self._dispersion(now, load.arrival_rate),
        )

    def _completed(
        self, now: float, load: Load, observation: LoadObservation
    ) -> tuple[tuple[float, float, float], ...]:
        if load.waiting is None:
            return ()
        rate = sum(work.requests for work in observation.work_done.values()) / POLL_SECONDS
        recent = (row for row in self.completed if POLL_SECONDS / 2 < now - row[0] <= WINDOW_SECONDS)
        return (*recent, (now, rate, float(load.waiting + load.in_flight)))

    @property
    def arrival_rate(self) -> float:
        """Mean of the measured arrivals of the last five minutes; 0 if unknown."""
        now = max((at for at, *_ in (*self.arrivals[-1:], *self.completed[-1:])), default=0.0)
        recent = [rate for at, rate in self.arrivals if now - at < WINDOW_SECONDS]
        return sum(recent) / len(recent) if recent else 0.0

    @property
    def proven_rate(self) -> float:
        """The least arrivals a second of the last five minutes that their reports prove, in the mean.

        Workers completed them beyond those that had waited. 0 in the first minutes, and if the source sees no
        waiting requests. A report is a mean of that time, or not: the smaller sum counts.
        """
        if not self.completed or self.completed[-1][0] - self.completed[0][0] < WINDOW_SECONDS - POLL_SECONDS:
            return 0.0
        (began, _, before), *_, (now, rate, after) = self.completed
        mean = sum(row[1] for row in self.completed) / len(self.completed)
        return max(0.0, min(rate, mean) - max(0.0, before - after) / (now - began))

    def _staffed_wait(self, load: Load, waiting_estimate: WaitingEstimate, wait: float) -> StaffedWait:
        """Return the staffed wait after a minute, unchanged if the source does not see what waits."""
        if load.start_rate is None or load.counts_ended:
            return self.staffed_wait
        if load.oldest_seconds is None:  # a request waits until those before it have started
            late = waiting_estimate.requests > wait * load.start_rate
        else:
            late = bool(load.waiting) and load.oldest_seconds > wait
        late = late or load.refused_rate > 0
        return self.staffed_wait.update(load.start_rate, late=late)

    def _dispersion(self, now: float, rate: float) -> Dispersion:
        """Return the dispersion with the last two minutes, if they are consecutive."""
        last_at, last_rate = self.arrivals[-1] if self.arrivals else (0.0, 0.0)
        return (
            self.dispersion.update(last_rate, rate) if now - last_at < 1.5 * POLL_SECONDS else self.dispersion
        )

    def record_decision(self, now: float, workers: int, *, raised: bool = False) -> ScalingMemory:
        """Return the state after a decision; one decision is kept a minute."""
        recent = (
            decision for decision in self.desired if POLL_SECONDS / 2 <= now - decision[0] < COOLDOWN_SECONDS
        )
        raised_at = now if raised else self.raised_at
        return replace(self, desired=(*recent, (now, workers)), raised_at=raised_at)

    def max_desired(self, since: float) -> int:
        """Return the maximum of the workers desired after ``since``, within the cooldown."""
        return max((workers for at, workers in self.desired if at > since), default=0)


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """The stored form; the profile is split into two parts, because its rates are rounded."""

    rates: Mapping[int, float]
    bin: tuple[int, float, int]
    throughput: Throughput
    staffed_wait: Annotated[StaffedWait, Stored("staffed")] = field(default_factory=StaffedWait)
    dispersion: Dispersion = field(default_factory=Dispersion)
    arrivals: tuple[tuple[float, float], ...]
    desired: Annotated[tuple[tuple[float, int], ...], Stored("wanted")]
    waiting_estimate: WaitingEstimate = field(default_factory=WaitingEstimate)
    batch_times: BatchTimes = field(default_factory=BatchTimes)
    raised_at: float = 0.0
    completed: tuple[tuple[float, float, float], ...] = ()


def dump(memory: ScalingMemory) -> str:
    """Return the state as JSON, a few kilobytes."""
    profile = memory.profile
    stored = _Stored(
        rates={number: float(f"{rate:.4g}") for number, rate in profile.rates.items()},
        bin=(profile.bin, profile.total, profile.count),
        throughput=memory.throughput,
        staffed_wait=memory.staffed_wait,
        dispersion=memory.dispersion,
        arrivals=memory.arrivals,
        desired=memory.desired,
        waiting_estimate=memory.waiting_estimate,
        batch_times=memory.batch_times,
        raised_at=memory.raised_at,
        completed=memory.completed,
    )
    return json.dumps(codec.dump(stored), separators=(",", ":"))


def parse(text: str) -> ScalingMemory:
    """Parse the text of `dump`; malformed text gives an empty state, and learning starts over."""
    try:
        stored = codec.parse_text(_Stored, text)
    except ContractError:
        return ScalingMemory()
    if not all(seconds > 0 for _, seconds in stored.throughput.by_type.values()):
        return ScalingMemory()
    rates = {number: rate for number, rate in stored.rates.items() if number < BINS}
    return ScalingMemory(
        Profile(rates, *stored.bin),
        stored.throughput,
        stored.staffed_wait,
        stored.dispersion,
        stored.arrivals[-ARRIVAL_MINUTES:],
        stored.desired[-60:],
        stored.waiting_estimate,
        stored.batch_times,
        stored.raised_at,
        stored.completed[-ARRIVAL_MINUTES:],
    )
