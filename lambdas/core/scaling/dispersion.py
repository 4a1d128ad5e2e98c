"""Overdispersion of the arrivals: how much more the minutes of a steady load vary than a Poisson process.

If the rate fluctuates within seconds, the count n of a minute has the variance n + share · n² of a negative
binomial distribution instead of the variance n of a Poisson distribution. Two consecutive minutes have nearly
the same load, so half the square of their difference estimates the variance, whatever the load does over the
day. Source: Wang et al., BurstGPT, arXiv 2401.17644 (measured on services).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from contracts.stored import stored
from lambdas.core.scaling.model import POLL_SECONDS

_DECAY: Final = math.exp(-1 / 1440)
"""Weight of the past per minute: a memory of about a day."""
_MAX_SHARE: Final = 1 / 8
"""A larger share is a change of the load; else one outage would make all bursts of a day look like noise."""
_SIGNIFICANT_DEVIATIONS: Final = 3.0


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Dispersion:
    """Decayed sums over pairs of consecutive minutes, in requests squared.

    Attributes:
        excess_variance: variance beyond that of a Poisson process.
        squared_means: squares of the mean counts.
    """

    excess_variance: float = 0.0
    squared_means: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible sums."""
        if not (math.isfinite(self.excess_variance) and 0 <= self.squared_means < math.inf):
            raise ValueError(
                "excess_variance and squared_means must be finite, and squared_means 0 or more, not "
                f"{self.excess_variance} and {self.squared_means}"
            )

    @property
    def share(self) -> float:
        """The squared coefficient of variation of a minute's rate, at most 1/8; 0 if unknown."""
        return (
            min(_MAX_SHARE, max(0.0, self.excess_variance / self.squared_means))
            if self.squared_means
            else 0.0
        )

    def update(self, previous_rate: float, rate: float) -> Dispersion:
        """Return the sums after two consecutive minutes with these requests a second."""
        first, second = previous_rate * POLL_SECONDS, rate * POLL_SECONDS
        mean = (first + second) / 2
        variance = min(
            (first - second) ** 2 / 2, _SIGNIFICANT_DEVIATIONS**2 * mean + _MAX_SHARE * mean * mean
        )
        return Dispersion(
            self.excess_variance * _DECAY + variance - mean, self.squared_means * _DECAY + mean * mean
        )

    def variance(self, requests: float, seconds: float) -> float:
        """Return the variance of a count of ``requests`` within ``seconds``."""
        return requests + self.share * requests * requests * POLL_SECONDS / max(seconds, POLL_SECONDS)
