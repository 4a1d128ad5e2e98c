"""The clock of a play: it may run faster than the machine's."""

from __future__ import annotations

import time


class PlayClock:
    """Wall and monotonic time that pass ``pace`` times as fast as the machine's, from now on."""

    def __init__(self, pace: float = 1.0) -> None:
        self._pace = pace
        self._began = time.time()
        self._began_monotonic = time.monotonic()

    def of_machine(self, at: float) -> float:
        """Return the play's time at a time of the machine, both in epoch seconds."""
        return self._began + (at - self._began) * self._pace

    def wall(self) -> float:
        """Return epoch seconds."""
        return self.of_machine(time.time())

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start."""
        return (time.monotonic() - self._began_monotonic) * self._pace

    def sleep(self, seconds: float) -> None:
        """Block for ``seconds`` of the play."""
        time.sleep(max(seconds, 0.0) / self._pace)
