"""Simulated time for the whole process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import time_machine


class SimulatedTime:
    """A clock that advances only on request. Times are epoch seconds."""

    def __init__(self, now: float, move: Callable[[float], None]) -> None:
        self._now = now
        self._move = move

    @property
    def now(self) -> float:
        """The simulated time."""
        return self._now

    def set(self, now: float) -> None:
        """Advance to a time that is not before the current one."""
        if now < self._now:
            raise ValueError(f"the time must be {self._now} or later, not {now}")
        self._now = now
        self._move(now)


@contextlib.contextmanager
def simulated(start: float) -> Iterator[SimulatedTime]:
    """Freeze ``time.time``, ``datetime.now`` and similar at ``start``; monotonic clocks continue."""
    with time_machine.travel(start, tick=False) as coordinates:
        yield SimulatedTime(start, coordinates.move_to)
