"""Requests that a candidate and the release before it end in the same minutes: which fails more of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from contracts.registry.item import Worker
from contracts.stored import stored
from lambdas.core.health.fair_share import MIN_REQUESTS
from lambdas.core.health.model import WorkerHost

MARGIN: Final = 0.025
"""A candidate is bad if its share of failed requests is higher by more than this."""
STANDARD_ERRORS: Final = 3.0
"""The difference must be beyond the margin by so many standard errors, to either side."""
LATE_STANDARD_ERRORS: Final = 1.0
"""So many reject a candidate after `MAX_HOLD_SECONDS`; a candidate that they do not reject goes on."""
MIN_WORSE_WINDOWS: Final = 3
"""Windows in which the candidate was worse: no single incident rejects it."""
MAX_HOLD_SECONDS: Final = 3600.0
"""A candidate is held for at most so long for lack of requests, without the time of an outage."""
MAX_WINDOW_SECONDS: Final = 900.0
"""With few requests a window is closed after this time."""
MAX_GAP_SECONDS: Final = 180.0
"""Longest time between two reports whose difference counts: longer ones are not of the same minutes."""
MAX_WEIGHT: Final = 3
"""A worker counts at most as this many medians of its side: a faulty counter does not decide alone."""
MAX_WORKERS: Final = 200
"""Compared workers of each side: bounds the stored state."""
OUTAGE_SHARE: Final = 0.25
"""Share of the others' requests that fail while a dependency is out."""
OUTAGE_SECONDS: Final = 300.0
"""A roll-out goes on after so long without a sign of an outage."""
MAX_OUTAGE_SECONDS: Final = 7200.0
"""An outage that lasts longer is the usual state: its minutes count, and hold nothing."""

ComparedWorkers: TypeAlias = Sequence[tuple[WorkerHost, Worker]]
"""Workers of one side with their hosts."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WorkerCounters:
    """A worker's counters at its report: ``done`` and ``failed`` since its start at ``since``."""

    since: float
    at: float
    done: int
    failed: int
    starts: int


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class PairedRequests:
    """Requests of the same minutes: how many the candidate's workers and the others ended, and failed."""

    new: int = 0
    new_failed: int = 0
    old: int = 0
    old_failed: int = 0

    def __add__(self, more: PairedRequests) -> PairedRequests:
        """Return the sums."""
        return PairedRequests(
            self.new + more.new,
            self.new_failed + more.new_failed,
            self.old + more.old,
            self.old_failed + more.old_failed,
        )

    @property
    def fewest(self) -> int:
        """Requests of the side with fewer."""
        return min(self.new, self.old)

    @property
    def new_share(self) -> float:
        """Share of the candidate's requests that failed."""
        return self.new_failed / self.new if self.new else 0.0

    @property
    def old_share(self) -> float:
        """Share of the others' requests that failed."""
        return self.old_failed / self.old if self.old else 0.0

    def difference(self, errors: float) -> float:
        """Return by how much the candidate's share of failures is higher, plus standard errors.

        Each side gets two requests more, of which one failed, so that the interval holds for small numbers
        (Agresti and Caffo, The American Statistician 54, 2000).
        """
        new, old = (self.new_failed + 1) / (self.new + 2), (self.old_failed + 1) / (self.old + 2)
        variance = new * (1 - new) / (self.new + 2) + old * (1 - old) / (self.old + 2)
        return new - old + errors * math.sqrt(variance)


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Comparison:
    """What is known of a candidate in comparison with the release before it.

    Attributes:
        began_at: when a worker of the candidate was first ready (epoch seconds); 0 before.
        updated_at: when it was last updated.
        counters: the last counters by side (``new``, ``old``) and worker.
        window_began_at: begin of the window whose requests are in ``window``.
        total: requests of all windows without those of an outage.
        worse_windows: windows in which the candidate's share of failures was higher by `MARGIN`.
        starts: unrequested starts of the candidate's workers, and of the others'.
        minutes: observed minutes of the candidate's workers, and of the others'.
        outage_began_at, outage_at: first and last sign of the current outage of a dependency.
    """

    began_at: float = 0.0
    updated_at: float = 0.0
    counters: Mapping[str, Mapping[str, WorkerCounters]] = field(default_factory=dict)
    window_began_at: float = 0.0
    window: PairedRequests = field(default_factory=PairedRequests)
    total: PairedRequests = field(default_factory=PairedRequests)
    worse_windows: int = 0
    starts: tuple[int, int] = (0, 0)
    minutes: tuple[float, float] = (0.0, 0.0)
    outage_began_at: float = 0.0
    outage_at: float = 0.0

    def is_outage(self, now: float) -> bool:
        """Return whether a dependency fails the requests of both releases, or did until recently."""
        return now - self.outage_at < OUTAGE_SECONDS and now - self.outage_began_at < MAX_OUTAGE_SECONDS

    def has_expired(self, now: float) -> bool:
        """Return whether there has been no proof for so long that the candidate is held no longer."""
        return bool(self.began_at) and now - self.began_at >= MAX_HOLD_SECONDS and not self.is_outage(now)

    def is_good(self, now: float) -> bool:
        """Return whether the candidate is proven to fail no more requests than allowed."""
        has_requests = self.total.fewest >= MIN_REQUESTS
        return has_requests and self.total.difference(STANDARD_ERRORS) <= MARGIN and not self.is_outage(now)

    def is_bad(self, now: float) -> bool:
        """Return whether the candidate fails more requests than allowed, and by more than chance."""
        errors = LATE_STANDARD_ERRORS if self.has_expired(now) else STANDARD_ERRORS
        is_seen = self.has_expired(now) or self.worse_windows >= MIN_WORSE_WINDOWS
        return self.total.fewest >= MIN_REQUESTS and is_seen and self.total.difference(-errors) > MARGIN

    def is_usual_crash_rate(self) -> bool:
        """Return whether other workers crash at least half as often as the candidate's."""
        (new, old), (new_minutes, old_minutes) = self.starts, self.minutes
        return old > 0 and 2 * old * new_minutes >= new * old_minutes

    def describe(self) -> str:
        """Return the compared requests in words."""
        total = self.total
        return (
            f"{total.new_failed} of its {total.new} requests failed ({total.new_share:.1%}), and "
            f"{total.old_failed} of the {total.old} that other instances ended in the same minutes "
            f"({total.old_share:.1%})"
        )


def update(comparison: Comparison, new: ComparedWorkers, old: ComparedWorkers, now: float) -> Comparison:
    """Return the comparison after a pass with these workers of the candidate and of the release before it."""
    elapsed = max(0.0, min(now - (comparison.updated_at or now), MAX_WINDOW_SECONDS)) / 60
    counters, changes = {}, []
    for side, workers in (("new", new), ("old", old)):
        before = comparison.counters.get(side, {})
        after = _counters(workers)
        # A worker that is new here but started before the last pass did an unknown part since.
        changes.append(
            [
                _since(before.get(name), counted)
                for name, counted in after.items()
                if name in before or comparison.updated_at <= counted.since
            ]
        )
        # Workers that restart have no item for some minutes.
        missing = {k: c for k, c in before.items() if k not in after and now - c.at < MAX_WINDOW_SECONDS}
        counters[side] = {**dict(list(missing.items())[:MAX_WORKERS]), **after}
    comparison = replace(comparison, updated_at=now, counters=counters)
    if not new:
        # Only the same minutes are compared.
        return replace(comparison, window=PairedRequests(), window_began_at=now)
    (new_starts, old_starts), (new_minutes, old_minutes) = comparison.starts, comparison.minutes
    comparison = replace(
        comparison,
        began_at=comparison.began_at or now,
        window_began_at=comparison.window_began_at or now,
        window=comparison.window + PairedRequests(*_total(changes[0]), *_total(changes[1])),
        starts=(
            new_starts + sum(change.starts for change in changes[0]),
            old_starts + sum(change.starts for change in changes[1]),
        ),
        minutes=(new_minutes + len(new) * elapsed, old_minutes + len(old) * elapsed),
    )
    return _close_window(comparison, now)


def _counters(workers: ComparedWorkers) -> dict[str, WorkerCounters]:
    """Return the counters of the workers that report their progress."""
    reports = {f"{host.id}/{worker.slot}": (worker.since, worker.report) for host, worker in workers}
    counted = {
        name: WorkerCounters(since, report.reported_at, report.done, report.failed, report.starts)
        for name, (since, report) in sorted(reports.items())
        if report is not None and report.reported_at > 0
    }
    return dict(list(counted.items())[:MAX_WORKERS])


def _since(before: WorkerCounters | None, after: WorkerCounters) -> WorkerCounters:
    """Return what a worker did since its last counters; without requests if that is unknown.

    A process that started in the meantime has counted from 0.
    """
    starts = max(0, after.starts - before.starts) if before is not None else 0
    is_same_process = before is not None and before.since == after.since and not starts
    if before is None or not is_same_process:
        before = WorkerCounters(after.since, after.since, 0, 0, 0)
    done, failed = after.done - before.done, after.failed - before.failed
    is_known = 0 <= after.at - before.at <= MAX_GAP_SECONDS and 0 <= failed <= done
    return replace(after, done=done if is_known else 0, failed=failed if is_known else 0, starts=starts)


def _total(changes: Iterable[WorkerCounters]) -> tuple[int, int]:
    """Return how many requests were ended and failed, with no worker above `MAX_WEIGHT` medians."""
    working = [change for change in changes if change.done]
    median = statistics.median([change.done for change in working]) if working else 0
    limits = [(change, min(change.done, max(1, int(MAX_WEIGHT * median)))) for change in working]
    failed = sum(round(change.failed * limit / change.done) for change, limit in limits)
    return sum(limit for _, limit in limits), failed


def _close_window(comparison: Comparison, now: float) -> Comparison:
    """Count the window once both sides have enough requests, or it is old; drop it in an outage."""
    window = comparison.window
    is_old = now - comparison.window_began_at >= MAX_WINDOW_SECONDS
    if window.fewest < MIN_REQUESTS and not is_old:
        return comparison
    comparison = replace(comparison, window=PairedRequests(), window_began_at=now)
    if not window.fewest:
        return comparison
    if window.old_share >= OUTAGE_SHARE and 2 * window.new_share >= window.old_share:
        is_same = now - comparison.outage_at < OUTAGE_SECONDS + MAX_WINDOW_SECONDS
        began_at = comparison.outage_began_at if is_same else now
        comparison = replace(comparison, outage_began_at=began_at, outage_at=now)
        if comparison.is_outage(now):
            return comparison
    is_worse = window.new_share - window.old_share > MARGIN
    worse_windows = comparison.worse_windows + is_worse
    return replace(comparison, total=comparison.total + window, worse_windows=worse_windows)
