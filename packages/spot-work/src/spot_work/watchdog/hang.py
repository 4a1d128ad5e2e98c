"""Tells a worker that hangs from one that is busy.

A worker's tick is a thread of it that runs. Without ticks its function holds the interpreter lock, or the
process is stopped. It is busy if it uses the CPU meanwhile; if not, it waits for something with the lock
held, and nothing else can run in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

HANG_SECONDS: Final = 10
"""Seconds without a tick and without work after which a worker hangs."""
_MIN_CPU_SHARE: Final = 0.05
"""A waiting process uses less; its threads ask for the interpreter lock 200 times a second, which on a busy
host is more than 1 %."""


class HangDetector:
    """Counts the seconds in which a worker neither ticked nor worked; call `is_hanging` once a second.

    Seconds are counted, not measured: while the whole host is suspended, nothing counts.
    """

    def __init__(self) -> None:
        self._seconds = 0
        self._cpu_seconds: float | None = None

    def is_hanging(self, *, has_ticked: bool, cpu_seconds: float | None) -> bool:
        """Return whether the worker hangs; ``cpu_seconds`` since its start, None if unknown: it is busy."""
        before, self._cpu_seconds = self._cpu_seconds, cpu_seconds
        has_worked = before is None or cpu_seconds is None or cpu_seconds - before > _MIN_CPU_SHARE
        self._seconds = 0 if has_ticked or has_worked else self._seconds + 1
        return self._seconds >= HANG_SECONDS


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of a process and its ended threads; None if the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
