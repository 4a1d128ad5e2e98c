"""Memory of two releases' workers, over the same minutes: whether the candidate's grows until it is full.

A worker's memory is a share of what it may use. Peaks of windows are compared with those of the same process
in the window before, so that a level is no reason, only what would end in an out-of-memory kill.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from contracts.stored import Stored, stored

WINDOW_SECONDS: Final = 180.0
"""A window has the peaks of three passes."""
WARM_UP_SECONDS: Final = 300.0
"""A process loads its model and fills its caches first."""
MIN_WINDOWS: Final = 4
"""Fewest differences of windows that decide: each half of the trend has two."""
MAX_WINDOWS: Final = 40
MAX_WORKERS: Final = 50
"""Workers of each side: bounds the stored state."""
HORIZON: Final = 2.0
"""A release whose workers would be full within this many times the observed time is rejected."""
FULL: Final = 0.95
"""Share of what a worker may use above which the kernel kills it at the next peak."""
MIN_LEVEL_DIFFERENCE: Final = 0.05
"""A full candidate is rejected if the others use less by at least this share."""
MIN_DEVIATION: Final = 0.001
"""Least standard deviation of a difference: reports are rounded, and a few windows underestimate it."""
MIN_GROWTH: Final = 5.0
"""Standard deviations that a growth must exceed: about 1 in 500 of the trends of four normal differences."""
DOUBT: Final = 1.5
"""Standard deviations to the better by which each half of a trend may be wrong when it is continued."""
SAFE_SECONDS: Final = 2 * 3600.0
"""A release is accepted if its workers would not be full within this time, as fast as they may grow."""
SAFE_DOUBT: Final = 2.0
"""Standard deviations by which the growth of the newer half of the windows may be wrong for that."""


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """A worker's memory: its share of what the process, started at ``since``, may use."""

    since: float
    share: float


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WorkerPeak:
    """Peaks of a process in the window before and in the current one; -1: unknown."""

    since: float
    before: float = -1.0
    peak: float = -1.0


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WindowGrowth:
    """Median growth of the candidate's workers and of the others' from one window to the next."""

    new: float
    old: float


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """The memory of both releases' workers in the windows so far.

    Attributes:
        peaks: by side (``new``, ``old``) and worker.
        window_began_at: begin of the current window (epoch seconds).
        growth: growth in each window in which both sides had a process of the window before.
        new_level, old_level: median peaks of the last window.
        full_windows: windows in a row in which the candidate was full and the others were not.
    """

    peaks: Mapping[str, Mapping[str, WorkerPeak]] = field(default_factory=dict)
    window_began_at: Annotated[float, Stored("windowBegan")] = 0.0
    growth: tuple[WindowGrowth, ...] = ()
    new_level: float = 0.0
    old_level: float = 0.0
    full_windows: int = 0

    @property
    def is_harmless(self) -> bool:
        """Whether the candidate is proven not to be full soon."""
        if len(self.growth) < MIN_WINDOWS or self.full_windows:
            return False
        middle = len(self.growth) // 2
        newer = sum(self._differences[-middle:]) + SAFE_DOUBT * self._deviation
        return self.new_level + max(0.0, newer) / middle * SAFE_SECONDS / WINDOW_SECONDS < 1

    @property
    def _differences(self) -> list[float]:
        return [window.new - window.old for window in self.growth]

    @property
    def _deviation(self) -> float:
        """Standard deviation of a difference; at least two windows are needed."""
        return max(statistics.stdev(self._differences), MIN_DEVIATION)

    @property
    def seconds_until_full(self) -> float:
        """Seconds after which the candidate is full, if its growth is proven; else infinity.

        The growth beyond that of the others must exceed the deviation of single windows: peaks that only vary
        fall as often as they rise, and their differences add up to nothing. It is continued as it was in
        both halves of the windows: what slows down slows down further.
        """
        differences = self._differences
        if len(differences) < MIN_WINDOWS or sum(differences) < MIN_GROWTH * self._deviation:
            return math.inf
        doubt = DOUBT * self._deviation
        middle = len(differences) // 2
        # Of an odd number the first difference is left out.
        first = sum(differences[-2 * middle : -middle]) + doubt
        step = second = sum(differences[-middle:]) - doubt
        ratio = min(1.0, second / first) if first > 0 else 0.0
        level, seconds = self.new_level, 0.0
        while level < 1 and seconds < HORIZON * len(differences) * WINDOW_SECONDS:
            step *= ratio
            if step <= 0:
                return math.inf
            level += step
            seconds += middle * WINDOW_SECONDS
        return seconds if level >= 1 else math.inf

    def rejection_reason(self, noun: str) -> str:
        """Return why the candidate is rejected, with the evidence; ``noun``: what shares are of."""
        if self.full_windows >= 2:
            return (
                f"its workers use {self.new_level:.0%} of {noun}, and others {self.old_level:.0%} in the "
                "same minutes: they would be killed for lack of memory"
            )
        if math.isinf(seconds := self.seconds_until_full):
            return ""
        new, old = (sum(getattr(window, side) for window in self.growth) for side in ("new", "old"))
        minutes = len(self.growth) * WINDOW_SECONDS / 60
        return (
            f"its workers' memory has grown by {new:.1%} of {noun} in {minutes:.0f} minutes, to "
            f"{self.new_level:.0%}, and that of others by {old:.1%}: it would be full in "
            f"{seconds / 3600:.1f} hours"
        )


def update(
    trend: MemoryTrend, new: Mapping[str, MemoryReading], old: Mapping[str, MemoryReading], now: float
) -> MemoryTrend:
    """Return the trend after a pass with these readings by worker.

    Of the candidate only processes that started together have one trend: later ones would warm up in it. The
    trend starts again when none of them is left.
    """
    if trend.growth and not trend.peaks.get("new"):
        trend = MemoryTrend()
    if not new and not trend.growth:
        return replace(trend, peaks={}, window_began_at=now)
    if trend.growth:
        new = {key: reading for key, reading in new.items() if _is_same(trend.peaks["new"].get(key), reading)}
    peaks = {
        side: _add(trend.peaks.get(side, {}), readings, now)
        for side, readings in (("new", new), ("old", old))
    }
    trend = replace(trend, peaks=peaks, window_began_at=trend.window_began_at or now)
    if now - trend.window_began_at < WINDOW_SECONDS:
        return trend
    return _close_window(trend, now)


def _is_same(peak: WorkerPeak | None, reading: MemoryReading) -> bool:
    return peak is not None and peak.since == reading.since


def _add(
    peaks: Mapping[str, WorkerPeak], readings: Mapping[str, MemoryReading], now: float
) -> dict[str, WorkerPeak]:
    """Return the peaks with those of warm processes; one without a reading remains until the window ends."""
    added = dict(peaks)
    for key, reading in sorted(readings.items()):
        if now - reading.since < WARM_UP_SECONDS:
            continue
        before = peaks.get(key)
        if before is None or before.since != reading.since:
            before = WorkerPeak(reading.since)
        added[key] = replace(before, peak=max(before.peak, round(reading.share, 5)))
    return dict(list(added.items())[:MAX_WORKERS])


def _close_window(trend: MemoryTrend, now: float) -> MemoryTrend:
    new, old = (tuple(trend.peaks[side].values()) for side in ("new", "old"))
    levels = [_median(peak.peak for peak in side if peak.peak >= 0) for side in (new, old)]
    growths = [
        _median(peak.peak - peak.before for peak in side if min(peak.peak, peak.before) >= 0)
        for side in (new, old)
    ]
    closed = replace(
        trend,
        window_began_at=now,
        peaks={
            side: {key: WorkerPeak(peak.since, peak.peak) for key, peak in workers.items() if peak.peak >= 0}
            for side, workers in trend.peaks.items()
        },
    )
    if levels[0] is None or levels[1] is None:
        return replace(closed, full_windows=0)
    is_full = levels[0] >= FULL and levels[0] - levels[1] >= MIN_LEVEL_DIFFERENCE
    closed = replace(
        closed,
        new_level=levels[0],
        old_level=levels[1],
        full_windows=closed.full_windows + 1 if is_full else 0,
    )
    if growths[0] is None or growths[1] is None:
        return closed
    window = WindowGrowth(round(growths[0], 5), round(growths[1], 5))
    return replace(closed, growth=(*closed.growth, window)[-MAX_WINDOWS:])


def _median(values: Iterable[float]) -> float | None:
    present = list(values)
    return statistics.median(present) if present else None
