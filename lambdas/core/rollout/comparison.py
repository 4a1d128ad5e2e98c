"""Comparison of a candidate with the release before it, over the same minutes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, TypeAlias

from contracts.registry.item import Worker
from contracts.stored import Stored, stored
from lambdas.core.health.fair_share import MIN_REQUESTS
from lambdas.core.health.model import WorkerHost
from lambdas.core.rollout import memory_use, speed
from lambdas.core.rollout.counters import (
    CountDifference,
    WorkerCounters,
    difference,
    read_counters,
    total_requests,
)
from lambdas.core.rollout.memory_use import MemoryReading, MemoryTrend
from lambdas.core.rollout.sequential_test import (
    MAX_HARMLESS_DIFFERENCE,
    MIN_HARMFUL_DIFFERENCE,
    SLOWDOWN,
    Evidence,
    Tally,
    add_failures,
    add_speed,
)

MAX_WORKERS: Final = 200
"""Compared workers of each side: bounds the stored state."""
MAX_WINDOW_SECONDS: Final = 900.0
"""With few requests a window is closed after this time."""
OUTAGE_SHARE: Final = 0.25
"""Share of the others' requests that fail while a dependency is out."""
OUTAGE_SECONDS: Final = 300.0
"""A roll-out goes on after so long without a sign of an outage."""
MAX_OUTAGE_SECONDS: Final = 7200.0
"""An outage that lasts longer is the usual state: its minutes count, and hold nothing."""
MAX_HOLD_SECONDS: Final = 3600.0
"""After this time without proof the better estimate decides."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Comparison:
    """What is known of a candidate in comparison with the release before it.

    Attributes:
        began_at: when a worker of the candidate was first ready (epoch seconds); 0 before.
        updated_at: when it was last updated.
        counters: the last counters by side (``new``, ``old``) and worker.
        window_began_at: begin of the window whose requests are in ``window``.
        window: requests of the current window: the candidate's, of them failed, the others', of them failed.
        total: requests of all windows, as in ``window``.
        starts: unrequested starts of the candidate's workers, and of the others'.
        minutes: observed minutes of the candidate's workers, and of the others'.
        failures: evidence by failed requests.
        speed: evidence by seconds per request.
        speed_at: when speeds were last compared.
        slowdown: logarithm of the ratio of seconds per request, and the sum of its weights.
        memory: resident memory of the workers.
        gpu_memory: memory of their GPUs.
        outage_began_at, outage_at: first and last sign of the current outage of a dependency.
        is_accepted: the candidate has been proven harmless.
    """

    began_at: Annotated[float, Stored("began")] = 0.0
    updated_at: Annotated[float, Stored("at")] = 0.0
    counters: Mapping[str, Mapping[str, WorkerCounters]] = field(default_factory=dict)
    window_began_at: Annotated[float, Stored("windowBegan")] = 0.0
    window: tuple[int, int, int, int] = (0, 0, 0, 0)
    total: tuple[int, int, int, int] = (0, 0, 0, 0)
    starts: tuple[int, int] = (0, 0)
    minutes: tuple[float, float] = (0.0, 0.0)
    failures: Evidence = field(default_factory=Evidence)
    speed: Evidence = field(default_factory=Evidence)
    speed_at: float = 0.0
    slowdown: tuple[float, float] = (0.0, 0.0)
    memory: MemoryTrend = field(default_factory=MemoryTrend)
    gpu_memory: MemoryTrend = field(default_factory=MemoryTrend)
    outage_began_at: Annotated[float, Stored("outageBegan")] = 0.0
    outage_at: float = 0.0
    is_accepted: Annotated[bool, Stored("accepted")] = False

    @property
    def requests(self) -> Tally:
        """All compared requests."""
        return Tally(*self.total)

    def is_outage(self, now: float) -> bool:
        """Return whether a dependency fails the requests of both releases, or did until recently."""
        if now - self.outage_at >= OUTAGE_SECONDS:
            return False
        return now - self.outage_began_at < MAX_OUTAGE_SECONDS

    def has_expired(self, now: float) -> bool:
        """Return whether there has been no proof for so long that the estimates decide."""
        return bool(self.began_at) and now - self.began_at >= MAX_HOLD_SECONDS and not self.is_outage(now)

    def rejection_reason(self, now: float) -> str:
        """Return why the candidate is rejected, with the evidence; empty if it is not."""
        tally, ratio = self.requests, math.exp(self.slowdown[0])
        fails_more = self.failures.is_worse
        is_slower = self.speed.is_worse
        if not (fails_more or is_slower) and not self.is_accepted and self.has_expired(now):
            middle = (MAX_HARMLESS_DIFFERENCE + MIN_HARMFUL_DIFFERENCE) / 2
            has_requests = min(tally.new, tally.old) >= MIN_REQUESTS
            fails_more = has_requests and tally.new_share - tally.old_share > middle
            is_slower = self.slowdown[0] > math.log(SLOWDOWN) / 2
        if fails_more:
            return (
                f"{tally.new_failed} of its {tally.new} requests failed ({tally.new_share:.1%}), and "
                f"{tally.old_failed} of the {tally.old} that other instances ended in the same minutes "
                f"({tally.old_share:.1%})"
            )
        if is_slower:
            return (
                f"its workers take {ratio:.2f} times as long for a request as others do in the same minutes, "
                "at the same batch size on the same instance type"
            )
        resident = self.memory.rejection_reason("the memory that a worker may use")
        return resident or self.gpu_memory.rejection_reason("the GPU's memory")

    def is_usual_crash_rate(self) -> bool:
        """Return whether other workers crash at least half as often as the candidate's."""
        (new, old), (new_minutes, old_minutes) = self.starts, self.minutes
        return old > 0 and 2 * old * new_minutes >= new * old_minutes

    def describe(self, now: float) -> str:
        """Return the state of the comparison in a few words."""
        if self.is_outage(now):
            return "requests fail with both releases, which points to a dependency"
        tally = self.requests
        new, old = f"{tally.new_failed} of its {tally.new}", f"{tally.old_failed} of the others' {tally.old}"
        slowdown = f", a request takes {math.exp(self.slowdown[0]):.2f} times as long"
        memory = (
            f", memory is {self.memory.new_level:.0%} full, and that of others {self.memory.old_level:.0%}"
        )
        return (
            f"{new} requests failed, and {old}{slowdown if self.slowdown[1] else ''}"
            f"{memory if self.memory.growth else ''}"
        )


ComparedWorkers: TypeAlias = Sequence[tuple[WorkerHost, Worker]]
"""Workers of one side with their hosts."""


def update(comparison: Comparison, new: ComparedWorkers, old: ComparedWorkers, now: float) -> Comparison:
    """Return the comparison after a pass with these workers of the candidate and of the release before it."""
    new = sorted(new, key=_worker_key)[:MAX_WORKERS]
    old = sorted(old, key=_worker_key)[:MAX_WORKERS]
    counters = {"new": _counters(new), "old": _counters(old)}
    changes = [_changes(comparison, counters[side], side) for side in ("new", "old")]
    elapsed = max(0.0, min(now - (comparison.updated_at or now), MAX_WINDOW_SECONDS))
    comparison = replace(
        comparison,
        updated_at=now,
        counters={
            side: {**_missing(comparison.counters.get(side, {}), current, now), **current}
            for side, current in counters.items()
        },
    )
    if not new:
        # Only the same minutes are compared.
        return replace(comparison, window=(0, 0, 0, 0), window_began_at=now)
    requests = [total_requests(side) for side in changes]
    comparison = replace(
        comparison,
        began_at=comparison.began_at or now,
        window_began_at=comparison.window_began_at or now,
        window=_plus(comparison.window, requests),
        starts=(
            comparison.starts[0] + sum(change.starts for change in changes[0]),
            comparison.starts[1] + sum(change.starts for change in changes[1]),
        ),
        minutes=(
            comparison.minutes[0] + len(new) * elapsed / 60,
            comparison.minutes[1] + len(old) * elapsed / 60,
        ),
    )
    comparison = _close_window(comparison, now)
    comparison = _compare_speed(comparison, new, old, now)
    comparison = _compare_memory(comparison, new, old, now)
    is_speed_harmless = comparison.speed.is_harmless or (bool(old) and not _reports_speed(old))
    is_memory_harmless = comparison.memory.is_harmless or (bool(old) and not _resident(old))
    is_accepted = (
        comparison.failures.is_harmless
        and is_speed_harmless
        and is_memory_harmless
        and not comparison.is_outage(now)
    )
    return replace(comparison, is_accepted=comparison.is_accepted or is_accepted)


def _worker_key(pair: tuple[WorkerHost, Worker]) -> str:
    return f"{pair[0].id}/{pair[1].slot}"


def _counters(side: ComparedWorkers) -> dict[str, WorkerCounters]:
    read = {_worker_key(pair): read_counters(pair[1]) for pair in side}
    return {key: counters for key, counters in read.items() if counters is not None}


def _changes(
    comparison: Comparison, counters: Mapping[str, WorkerCounters], side: str
) -> list[CountDifference]:
    """Return what workers did since the last pass; nothing for those that started before and are new here."""
    earlier = comparison.counters.get(side, {})
    changes = [
        difference(earlier.get(key), after)
        for key, after in counters.items()
        if key in earlier or comparison.updated_at <= after.since
    ]
    return [change for change in changes if change is not None]


def _missing(
    before: Mapping[str, WorkerCounters], after: Mapping[str, WorkerCounters], now: float
) -> dict[str, WorkerCounters]:
    """Return the counters of workers without an item: those that restart have none for some minutes."""
    missing = {k: c for k, c in before.items() if k not in after and now - c.at < MAX_WINDOW_SECONDS}
    return dict(list(missing.items())[:MAX_WORKERS])


def _plus(total: tuple[int, int, int, int], requests: list[tuple[int, int]]) -> tuple[int, int, int, int]:
    (new, new_failed), (old, old_failed) = requests
    return total[0] + new, total[1] + new_failed, total[2] + old, total[3] + old_failed


def _close_window(comparison: Comparison, now: float) -> Comparison:
    """Evaluate the window once both sides have enough requests, or it is old."""
    window = Tally(*comparison.window)
    is_old = now - comparison.window_began_at >= MAX_WINDOW_SECONDS
    if min(window.new, window.old) < MIN_REQUESTS and not is_old:
        return comparison
    comparison = replace(comparison, window=(0, 0, 0, 0), window_began_at=now)
    if not min(window.new, window.old):
        return comparison
    if window.old_share >= OUTAGE_SHARE and 2 * window.new_share >= window.old_share:
        is_same = now - comparison.outage_at < OUTAGE_SECONDS + MAX_WINDOW_SECONDS
        began_at = comparison.outage_began_at if is_same else now
        comparison = replace(comparison, outage_began_at=began_at, outage_at=now)
        if comparison.is_outage(now):
            return comparison
    requests = [(window.new, window.new_failed), (window.old, window.old_failed)]
    return replace(
        comparison,
        total=_plus(comparison.total, requests),
        failures=add_failures(comparison.failures, window),
    )


def _reports_speed(side: ComparedWorkers) -> bool:
    return any(worker.report is not None and worker.report.batches is not None for _, worker in side)


def _resident(side: ComparedWorkers) -> dict[str, MemoryReading]:
    return {
        _worker_key((host, worker)): MemoryReading(worker.since, report.memory / report.memory_limit)
        for host, worker in side
        if (report := worker.report) is not None and report.memory is not None and report.memory_limit
    }


def _on_gpu(side: ComparedWorkers) -> dict[str, MemoryReading]:
    return {
        _worker_key((host, worker)): MemoryReading(worker.since, report.gpu_memory / 100)
        for host, worker in side
        if (report := worker.report) is not None and report.gpu_memory is not None
    }


def _compare_memory(
    comparison: Comparison, new: ComparedWorkers, old: ComparedWorkers, now: float
) -> Comparison:
    """Compare resident and GPU memory; a full GPU is no reason, as frameworks reserve all of it."""
    memory = memory_use.update(comparison.memory, _resident(new), _resident(old), now)
    gpu_memory = memory_use.update(comparison.gpu_memory, _on_gpu(new), _on_gpu(old), now)
    return replace(comparison, memory=memory, gpu_memory=replace(gpu_memory, full_windows=0))


def _compare_speed(
    comparison: Comparison, new: ComparedWorkers, old: ComparedWorkers, now: float
) -> Comparison:
    """Compare the speeds once per report window, without minutes of an outage."""
    has_outage = now - comparison.outage_at < speed.WINDOW_SECONDS + speed.WARM_UP_SECONDS
    if now - comparison.speed_at < speed.WINDOW_SECONDS or has_outage:
        return comparison
    ratio = speed.compare(speed.measure(new, now), speed.measure(old, now))
    if ratio is None:
        return comparison
    mean, weight = comparison.slowdown
    added = 1 / ratio.variance
    estimate = (mean * weight + (ratio.low + ratio.high) / 2 * added) / (weight + added)
    return replace(
        comparison,
        speed=add_speed(comparison.speed, ratio.low, ratio.high, ratio.variance),
        speed_at=now,
        slowdown=(round(estimate, 4), round(weight + added, 2)),
    )
