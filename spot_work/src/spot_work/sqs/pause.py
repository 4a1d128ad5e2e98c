"""How long to wait before the next try: longer each time, and not all workers of a fleet at once."""

from __future__ import annotations

import random
import threading
from typing import Final

_FIRST: Final = 0.5
_LONGEST: Final = 15.0


class Pause:
    """Doubles from half a second to 15, less a chance; ``total`` are the seconds since the last success."""

    def __init__(self) -> None:
        self._next = _FIRST
        self.total = 0.0

    def over(self) -> None:
        """Begin anew: it worked."""
        self._next, self.total = _FIRST, 0.0

    def draw(self) -> float:
        """Return the seconds to wait now."""
        seconds = self._next * random.uniform(0.5, 1.0)
        self._next = min(2 * self._next, _LONGEST)
        self.total += seconds
        return seconds

    def wait(self, end: threading.Event) -> float:
        """Wait, or until ``end`` is set; return the seconds that were drawn."""
        seconds = self.draw()
        end.wait(seconds)
        return seconds
