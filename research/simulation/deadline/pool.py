"""A capacity pool for one instance: alternating runs of ticks with and without Spot."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from market.rules import TICK_SECONDS
from market.supply.trace import PoolTrace, TraceError


@dataclass(frozen=True, slots=True)
class PoolRun:
    """The ticks in [``start``, ``end``), all with Spot (``up``) or all without."""

    start: int
    end: int
    up: bool


@dataclass(frozen=True, slots=True)
class PoolRuns:
    """The consecutive runs of a pool from tick 0 on; neighbours differ in ``up``."""

    name: str
    runs: tuple[PoolRun, ...]

    @property
    def ticks(self) -> int:
        """The length in ticks."""
        return self.runs[-1].end

    def index(self, tick: int) -> int:
        """Return the index of the run that holds ``tick``."""
        return bisect_right(self.runs, tick, key=lambda run: run.start) - 1

    @classmethod
    def of_trace(cls, trace: PoolTrace) -> PoolRuns:
        """Return the runs of a trace: a sample holds until the next; one instance or more is *up*."""
        ticks = int(trace.seconds // TICK_SECONDS)
        if ticks < 1:
            raise TraceError(
                f"trace {trace.name} must be at least one tick of 60 s long, not {trace.seconds:g} s"
            )
        at = (int(tick * TICK_SECONDS // trace.gap_seconds) for tick in range(ticks))
        return cls.of_ticks(trace.name, (trace.samples[k] > 0 for k in at))

    @classmethod
    def of_ticks(cls, name: str, ups: Iterable[bool]) -> PoolRuns:
        """Return the runs of a pool given tick by tick."""
        runs, end = list[PoolRun](), 0
        for up, ticks in groupby(map(bool, ups)):
            start, end = end, end + sum(1 for _ in ticks)
            runs.append(PoolRun(start, end, up))
        if not runs:
            raise TraceError(f"pool {name} has no ticks; add one")
        return cls(name, tuple(runs))
