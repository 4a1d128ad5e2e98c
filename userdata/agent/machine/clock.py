"""Time, injected: wall time for what is shared with others, monotonic time for what is measured here."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the agent needs of time."""

    def wall(self) -> float:
        """Return epoch seconds (UTC); may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never jump, from an arbitrary start."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds`` (0 or negative: not at all)."""
        ...


class SystemClock:
    """The machine's clock. CLOCK_BOOTTIME counts suspended time: an instance may hibernate."""

    def wall(self) -> float:
        """Return epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since boot, those suspended included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Block for ``seconds``."""
        if seconds > 0:
            time.sleep(seconds)
