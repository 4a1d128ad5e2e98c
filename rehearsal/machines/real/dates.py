"""Modification times of a real command's checkpoints in simulated time, which the agent reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_GRAIN: Final = 0.02
"""Tolerance of file times in seconds."""


class CheckpointDates:
    """Sets the modification times of a process's checkpoints to simulated time after its end.

    Between its start and its end or first signal simulated time passes evenly; during the final save it
    does not pass. ``clock`` returns simulated time, ``file_clock`` the time of the file system.
    """

    def __init__(self, folder: Path, clock: Callable[[], float], file_clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._file_clock = file_clock
        self._started = file_clock(), clock()
        self._signalled: tuple[float, float] | None = None

    def note_signal(self) -> None:
        """Record a signal; only the first counts."""
        self._signalled = self._signalled or (self._file_clock(), self._clock())

    def settle(self) -> None:
        """Set the times of the files that it wrote; those of earlier processes are already set."""
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
    """Return a clock with the time that the file system gives to files, even if Python's clock is patched."""

    def file_time() -> float:
        path.touch()
        return path.stat().st_mtime

    return file_time
