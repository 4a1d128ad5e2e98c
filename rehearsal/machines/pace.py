"""The speed of a simulated training over time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_NOTHING: Final = 1e-6
"""Tolerance of floating-point sums, in seconds of work."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A period (epoch seconds) in which training runs at ``speed`` times the usual rate; 0: it stalls.

    Models a slow file system or service; another instance does not help.
    """

    begin: float
    end: float
    speed: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for an invalid period or speed."""
        if not self.begin < self.end:
            raise ValueError(f"slowdown from {self.begin:g} to {self.end:g}, allowed: an end after the begin")
        if not 0 <= self.speed < 1:
            raise ValueError(f"speed is {self.speed:g}, allowed: 0 ≤ speed < 1")


@dataclass(frozen=True, slots=True)
class Speeds:
    """The slowdowns of a rehearsal, in order of time and without overlap."""

    slowdowns: Sequence[Slowdown] = ()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for overlapping or unordered slowdowns."""
        for hindrance, following in zip(self.slowdowns, self.slowdowns[1:], strict=False):
            if following.begin < hindrance.end:
                raise ValueError(
                    f"slowdown begins at {following.begin:g}, the previous one ends at {hindrance.end:g}"
                )

    def work(self, begin: float, end: float) -> float:
        """Return the seconds of full-speed work done between two times."""
        lost = (
            (1 - hindrance.speed) * max(0.0, min(end, hindrance.end) - max(begin, hindrance.begin))
            for hindrance in self.slowdowns
        )
        return end - begin - sum(lost)

    def when(self, begin: float, work: float) -> float:
        """Return when work that starts at ``begin`` is done; infinity: never."""
        at = begin
        for span_end, speed in self._spans(begin):
            if speed > 0 and work <= (span_end - at) * speed:
                return at + work / speed
            if speed == 0 and work <= _NOTHING:
                return at
            work -= (span_end - at) * speed
            at = span_end
        return math.inf

    def still_until(self, now: float) -> float:
        """Return the end of a stall, ``now`` if there is none."""
        for hindrance in self.slowdowns:
            if hindrance.begin <= now < hindrance.end and hindrance.speed == 0:
                now = hindrance.end
        return now

    def next_stop(self, now: float) -> float:
        """Return the start of the next stall, infinity if there is none."""
        return min(
            (
                hindrance.begin
                for hindrance in self.slowdowns
                if hindrance.begin > now and hindrance.speed == 0
            ),
            default=math.inf,
        )

    def _spans(self, begin: float) -> Iterator[tuple[float, float]]:
        """Yield the periods from ``begin`` on as (end, speed)."""
        at = begin
        for hindrance in self.slowdowns:
            if hindrance.end <= at:
                continue
            if hindrance.begin > at:
                yield hindrance.begin, 1.0
            yield hindrance.end, hindrance.speed
            at = hindrance.end
        if math.isfinite(at):
            yield math.inf, 1.0
