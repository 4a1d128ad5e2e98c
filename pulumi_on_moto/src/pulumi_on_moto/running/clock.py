"""Simulated time: the whole process reads this clock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import time_machine


class SimulatedTime:
    """A clock that stands still until it is moved. Times are epoch seconds."""

    def __init__(self, now: float, move: Callable[[float], None]) -> None:
        self._now = now
        self._move = move

    @property
    def now(self) -> float:
        """The simulated time."""
        return self._now

    def set(self, now: float) -> None:
        """Move to a time that is not before the present one."""
        if now < self._now:
            raise ValueError(f"time is {now}, it cannot go back behind {self._now}")
        self._now = now
        self._move(now)


@contextlib.contextmanager
def simulated(start: float) -> Iterator[SimulatedTime]:
    """Freeze ``time.time``, ``datetime.now`` and their kin at ``start``; monotonic clocks go on."""
    with time_machine.travel(start, tick=False) as coordinates:
        yield SimulatedTime(start, coordinates.move_to)
