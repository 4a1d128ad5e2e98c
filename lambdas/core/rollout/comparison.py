"""Requests that a candidate and the release before it end in the same minutes: which fails more of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Final

from contracts.registry.item import Worker
from contracts.stored import stored
from lambdas.core.health.fair_share import MIN_REQUESTS

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
MAX_OUTAGE_SECONDS: Final = 7200.0
"""Longer outages are the usual state: their minutes count, and hold nothing."""


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
class Paired:
    """Counts of the same minutes: of the candidate's workers and of the others, with what failed of them."""

    new: int = 0
    new_failed: int = 0
    old: int = 0
    old_failed: int = 0

    def __add__(self, more: Paired) -> Paired:
        """Return the sums."""
        return Paired(*map(sum, zip(astuple(self), astuple(more), strict=True)))

    @property
    def fewest(self) -> int:
        """The count of the side with less."""
        return min(self.new, self.old)

    @property
    def shares(self) -> tuple[float, float]:
        """The shares that failed, of the candidate's workers and of the others."""
        return self.new_failed / max(1, self.new), self.old_failed / max(1, self.old)

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
        counters: the last counters by side (``new``, ``old``) and worker.
        window_began_at: begin of the window whose requests are in ``window``.
        total: requests of all windows without those of an outage.
        worse_windows: windows in which the candidate's share of failures was higher by `MARGIN`.
        crashes: workers, added over all passes, and unrequested starts, as what failed of them.
        is_outage: in the last window a dependency failed the requests of both releases.
        outage_seconds: duration of all windows of an outage.
    """

    began_at: float = 0.0
    counters: Mapping[str, WorkerCounters] = field(default_factory=dict)
    window_began_at: float = 0.0
    window: Paired = field(default_factory=Paired)
    total: Paired = field(default_factory=Paired)
    worse_windows: int = 0
    crashes: Paired = field(default_factory=Paired)
    is_outage: bool = False
    outage_seconds: float = 0.0

    def has_expired(self, now: float) -> bool:
        """Return whether there has been no proof for so long that the candidate is held no longer."""
        waited = now - self.began_at - self.outage_seconds
        return bool(self.began_at) and waited >= MAX_HOLD_SECONDS and not self.is_outage

    def is_good(self) -> bool:
        """Return whether the candidate is proven to fail no more requests than allowed."""
        is_seen = self.total.fewest >= MIN_REQUESTS and not self.is_outage
        return is_seen and self.total.difference(STANDARD_ERRORS) <= MARGIN

    def is_bad(self, now: float) -> bool:
        """Return whether the candidate fails more requests than allowed, and by more than chance."""
        is_late = self.has_expired(now)
        errors = LATE_STANDARD_ERRORS if is_late else STANDARD_ERRORS
        is_seen = self.total.fewest >= MIN_REQUESTS and (is_late or self.worse_windows >= MIN_WORSE_WINDOWS)
        return is_seen and self.total.difference(-errors) > MARGIN

    def is_silent(self, now: float) -> bool:
        """Return whether the candidate's workers never reported requests, although the others do."""
        return self.has_expired(now) and {name.partition(" ")[0] for name in self.counters} == {"old"}

    def is_usual_crash_rate(self) -> bool:
        """Return whether other workers crash at least half as often as the candidate's."""
        new, old = self.crashes.shares
        return 2 * old >= new and old > 0

    def describe(self) -> str:
        """Return the compared requests in words."""
        total, (new, old) = self.total, self.total.shares
        return (
            f"{total.new_failed} of its {total.new} requests failed ({new:.1%}), and {total.old_failed} of "
            f"the {total.old} that other instances ended in the same minutes ({old:.1%})"
        )


def update(comparison: Comparison, new: Sequence[Worker], old: Sequence[Worker], now: float) -> Comparison:
    """Return the comparison after a pass with these workers of the candidate and of the release before it."""
    before, sides = comparison.counters, (_counters("new", new), _counters("old", old))
    after = sides[0] | sides[1]
    # Workers that restart have no item for some minutes.
    missing = [(k, c) for k, c in before.items() if k not in after and now - c.at < MAX_WINDOW_SECONDS]
    comparison = replace(comparison, counters=dict(missing[:MAX_WORKERS]) | after)
    if not new:
        # Only the same minutes are compared.
        return replace(comparison, window=Paired(), window_began_at=now)
    done = [[_since(before.get(name), counters) for name, counters in side.items()] for side in sides]
    starts = [sum(change.starts for change in changes) for changes in done]
    comparison = replace(
        comparison,
        began_at=comparison.began_at or now,
        window_began_at=comparison.window_began_at or now,
        window=comparison.window + Paired(*_total(done[0]), *_total(done[1])),
        crashes=comparison.crashes + Paired(len(new), starts[0], len(old), starts[1]),
    )
    return _close_window(comparison, now)


def _counters(side: str, workers: Iterable[Worker]) -> dict[str, WorkerCounters]:
    """Return the counters of the workers that report their progress."""
    counted = {
        f"{side} {w.instance}/{w.slot}": WorkerCounters(w.since, r.reported_at, r.done, r.failed, r.starts)
        for w in workers
        if (r := w.report) is not None and r.reported_at > 0
    }
    return dict(sorted(counted.items())[:MAX_WORKERS])


def _since(before: WorkerCounters | None, after: WorkerCounters) -> WorkerCounters:
    """Return what a worker did since its last counters; without requests if that is unknown.

    A process that started in the meantime has counted from 0.
    """
    starts = max(0, after.starts - before.starts) if before is not None else 0
    if before is None or before.since != after.since or starts:
        before = WorkerCounters(after.since, after.since, 0, 0, 0)
    done, failed = after.done - before.done, after.failed - before.failed
    is_known = 0 <= after.at - before.at <= MAX_GAP_SECONDS and 0 <= failed <= done
    return replace(after, done=done if is_known else 0, failed=failed if is_known else 0, starts=starts)


def _total(changes: Iterable[WorkerCounters]) -> tuple[int, int]:
    """Return how many requests were ended and failed, with no worker above `MAX_WEIGHT` medians."""
    working = [change for change in changes if change.done]
    maximum = max(1, int(MAX_WEIGHT * statistics.median([c.done for c in working]))) if working else 0
    limits = [(change, min(change.done, maximum)) for change in working]
    failed = sum(round(change.failed * limit / change.done) for change, limit in limits)
    return sum(limit for _, limit in limits), failed


def _close_window(comparison: Comparison, now: float) -> Comparison:
    """Count the window once both sides have enough requests, or it is old; drop it in an outage."""
    window, seconds = comparison.window, now - comparison.window_began_at
    if window.fewest < MIN_REQUESTS and seconds < MAX_WINDOW_SECONDS:
        return comparison
    comparison = replace(comparison, window=Paired(), window_began_at=now, is_outage=False)
    if not window.fewest:
        return comparison
    (new, old), outage_seconds = window.shares, comparison.outage_seconds
    if old >= OUTAGE_SHARE and 2 * new >= old and outage_seconds < MAX_OUTAGE_SECONDS:
        return replace(comparison, is_outage=True, outage_seconds=outage_seconds + seconds)
    worse_windows = comparison.worse_windows + (new - old > MARGIN)
    return replace(comparison, total=comparison.total + window, worse_windows=worse_windows)
