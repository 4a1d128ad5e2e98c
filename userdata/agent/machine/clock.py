"""Injectable time: wall time for values shared between machines, monotonic time for durations."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall time and monotonic time."""

    def wall(self) -> float:
        """Return epoch seconds (UTC); may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never jump, from an arbitrary start."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds`` (0 or negative: return at once)."""
        ...


class SystemClock:
    """The system clock. CLOCK_BOOTTIME includes suspended time: an instance may hibernate."""

    def wall(self) -> float:
        """Return epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since boot, including suspended time."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Block for ``seconds``."""
        if seconds > 0:
            time.sleep(seconds)
