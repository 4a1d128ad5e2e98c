"""The learned load by time of day: mean of each quarter hour of a working day, a Saturday and a Sunday."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

QUARTER_HOUR_SECONDS: Final = 900.0
BINS: Final = 3 * 96
_NEW_DAY_WEIGHT: Final = 0.3
"""Weight of a new day: a memory of about three days."""


def bin_of(now: float) -> int:
    """Return the index of the quarter hour within a working day, a Saturday and a Sunday (UTC)."""
    day = (int(now // 86400) + 3) % 7
    return max(0, day - 4) * 96 + int(now % 86400 // QUARTER_HOUR_SECONDS)


@dataclass(frozen=True, slots=True)
class Profile:
    """Mean requests a second by bin; ``total`` is the sum over the ``count`` minutes of ``bin`` so far."""

    rates: Mapping[int, float] = field(default_factory=dict)
    bin: int = -1
    total: float = 0.0
    count: int = 0

    def update(self, now: float, rate: float) -> Profile:
        """Return the profile after a minute with this rate; a quarter hour counts when it has ended."""
        current = bin_of(now)
        if current == self.bin:
            return replace(self, total=self.total + rate, count=self.count + 1)
        rates = dict(self.rates)
        if self.count >= 10:  # too few samples otherwise
            mean = self.total / self.count
            rates[self.bin] = mean + (1 - _NEW_DAY_WEIGHT) * (rates.get(self.bin, mean) - mean)
        return Profile(rates, current, rate, 1)

    def rate_at(self, now: float) -> float | None:
        """Return the mean rate at this time of day; None if unknown."""
        return self.rates.get(bin_of(now))
