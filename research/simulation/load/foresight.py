"""A rule that knows the coming load: a bound for comparison, which no service can deploy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from research.simulation.load.rules import View

_MEAN_MINUTES: Final = 2
"""Arrivals are averaged over this long: a request may wait for about a minute."""


@dataclass(slots=True)
class Foresight:
    """The workers for the busiest of the coming minutes, whose arrivals are known.

    It launches a boot ahead, and releases a worker only if it is not needed until a successor would be ready:
    a shorter release costs more than it saves. Interruptions are as unknown to it as to the other rules.

    Attributes:
        arrivals: requests of every second from ``begin`` (epoch seconds) on.
        rate: requests a second that count as the capacity of a worker; more than it completes lets some wait.
        boot_seconds: time from a launch until a worker is ready.
    """

    arrivals: NDArray[np.int64]
    rate: float
    boot_seconds: float
    begin: float
    _minutes: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        """Average the arrivals."""
        minutes = self.arrivals[: len(self.arrivals) // 60 * 60].reshape(-1, 60).mean(axis=1)
        self._minutes = np.convolve(minutes, np.ones(_MEAN_MINUTES) / _MEAN_MINUTES, "same")

    def target(self, view: View) -> int:
        """See ``Rule``."""
        now = int((view.now - self.begin) // 60)
        boot = math.ceil(self.boot_seconds / 60)
        coming = self._minutes[now + boot : now + boot + 2]
        soon = self._minutes[now : now + 2 * boot + 2]
        needed = self._workers(coming)
        return max(1, needed, min(view.target, self._workers(soon)))

    def _workers(self, rates: NDArray[np.float64]) -> int:
        return math.ceil(float(rates.max(initial=0.0)) / self.rate - 1e-9)
