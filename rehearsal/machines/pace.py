"""How fast a simulated training works from moment to moment: at full speed, more slowly, not at all. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_NOTHING: Final = 1e-6
"""Seconds of work that sums of floating-point numbers leave."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Between two times (epoch seconds) whoever trains does ``speed`` times the usual work; 0: none.

    As when a file system or a service that it reads from is slow: another instance does not help.
    """

    begin: float
    end: float
    speed: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a span or a speed without sense."""
        if not self.begin < self.end:
            raise ValueError(f"a hindrance from {self.begin:g} to {self.end:g}, a later end is needed")
        if not 0 <= self.speed < 1:
            raise ValueError(f"speed is {self.speed:g}, allowed: from 0 to less than 1")


@dataclass(frozen=True, slots=True)
class Speeds:
    """The hindrances of a rehearsal, in order of time and apart from each other."""

    slowdowns: Sequence[Slowdown] = ()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for two that overlap or are out of order."""
        for hindrance, following in zip(self.slowdowns, self.slowdowns[1:], strict=False):
            if following.begin < hindrance.end:
                raise ValueError(
                    f"a hindrance begins at {following.begin:g}, the one before ends at {hindrance.end:g}"
                )

    def work(self, begin: float, end: float) -> float:
        """Return the seconds of work at full speed that fit between two times."""
        lost = (
            (1 - hindrance.speed) * max(0.0, min(end, hindrance.end) - max(begin, hindrance.begin))
            for hindrance in self.slowdowns
        )
        return end - begin - sum(lost)

    def when(self, begin: float, work: float) -> float:
        """Return when so much work is done that was begun at ``begin``; infinity: never."""
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
        """Return when work goes on, ``now`` where it does now."""
        for hindrance in self.slowdowns:
            if hindrance.begin <= now < hindrance.end and hindrance.speed == 0:
                now = hindrance.end
        return now

    def next_stop(self, now: float) -> float:
        """Return when work next stops, infinity for never."""
        return min(
            (
                hindrance.begin
                for hindrance in self.slowdowns
                if hindrance.begin > now and hindrance.speed == 0
            ),
            default=math.inf,
        )

    def _spans(self, begin: float) -> Iterator[tuple[float, float]]:
        """Yield from ``begin`` on until when there is which speed."""
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
