"""When a really run command wrote its checkpoints, in simulated time: the agent goes by the files' times."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_GRAIN: Final = 0.02
"""Seconds by which file times of one moment differ."""


class CheckpointDates:
    """Dates the checkpoints of one process anew when it has ended; before, nobody but itself touches them.

    Between its start and its end, or the first signal, simulated time passed evenly; while it saved, it stood
    still. ``clock`` tells simulated time, ``here`` the file system's own.
    """

    def __init__(self, folder: Path, clock: Callable[[], float], file_clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._file_clock = file_clock
        self._started = file_clock(), clock()
        self._signalled: tuple[float, float] | None = None

    def note_signal(self) -> None:
        """It is signalled; the first time counts."""
        self._signalled = self._signalled or (self._file_clock(), self._clock())

    def settle(self) -> None:
        """It has ended: date what it wrote. What an earlier one wrote is dated already."""
        (began, since), (ended, end) = self._started, self._signalled or (self._file_clock(), self._clock())
        for path in self._folder.rglob("*"):
            with contextlib.suppress(OSError):
                written = path.stat().st_mtime
                if written < began - _GRAIN or not path.is_file():
                    continue
                share = min(1.0, max(0.0, written - began) / max(ended - began, _GRAIN))
                at = self._clock() if written >= ended - _GRAIN else since + share * (end - since)
                os.utime(path, (at, at))


def stamp(path: Path) -> Callable[[], float]:
    """Return what tells the time by which files beside ``path`` are dated, whatever Python is told."""

    def file_time() -> float:
        path.touch()
        return path.stat().st_mtime

    return file_time
