"""The load by time of day, learned: the mean of each quarter hour of a working day, Saturday, Sunday."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

QUARTER: Final = 900.0
BINS: Final = 3 * 96
_NEW: Final = 0.3
"""How much a new day counts against all before: about three days are remembered."""


def bin_of(now: float) -> int:
    """Return the quarter of an hour, among those of a working day, a Saturday and a Sunday (UTC)."""
    day = (int(now // 86400) + 3) % 7
    return max(0, day - 4) * 96 + int(now % 86400 // QUARTER)


@dataclass(frozen=True, slots=True)
class Profile:
    """``rates`` are requests a second by bin; ``total`` those of the ``count`` minutes of ``bin`` so far."""

    rates: Mapping[int, float] = field(default_factory=dict)
    bin: int = -1
    total: float = 0.0
    count: int = 0

    def seen(self, now: float, rate: float) -> Profile:
        """Return the profile after a minute with this rate; a quarter counts once it is over."""
        current = bin_of(now)
        if current == self.bin:
            return replace(self, total=self.total + rate, count=self.count + 1)
        rates = dict(self.rates)
        if self.count >= 10:  # a quarter of which most was missed says little
            mean = self.total / self.count
            rates[self.bin] = mean + (1 - _NEW) * (rates.get(self.bin, mean) - mean)
        return Profile(rates, current, rate, 1)

    def at(self, now: float) -> float | None:
        """Return what a usual day has at this time, None where no such day was seen."""
        return self.rates.get(bin_of(now))
