"""Exponential backoff with jitter, and the random numbers of delays and samples."""

from __future__ import annotations

import random
import threading
from typing import Final

RANDOM: Final = random.SystemRandom()
"""Apart from the global generator: workers whose functions seed it alike would draw alike."""
_MIN_DELAY_SECONDS: Final = 0.5
_MAX_DELAY_SECONDS: Final = 15.0


class Backoff:
    """Delays between retries: doubled from 0.5 to 15 seconds, less up to half at random.

    A fleet's workers must not reconnect together.
    """

    def __init__(self) -> None:
        self._delay = _MIN_DELAY_SECONDS
        self.total_seconds = 0.0
        """Sum of the delays since the last success."""

    def reset(self) -> None:
        """Record a success."""
        self._delay, self.total_seconds = _MIN_DELAY_SECONDS, 0.0

    def next_delay(self) -> float:
        """Return the delay before the next retry, in seconds."""
        seconds = self._delay * RANDOM.uniform(0.5, 1.0)
        self._delay = min(2 * self._delay, _MAX_DELAY_SECONDS)
        self.total_seconds += seconds
        return seconds

    def wait(self, stop: threading.Event) -> float:
        """Wait for the next delay, or until ``stop`` is set; return the delay."""
        seconds = self.next_delay()
        stop.wait(seconds)
        return seconds
