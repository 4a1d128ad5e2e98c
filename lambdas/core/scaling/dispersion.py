"""How much more the minutes of a steady load differ than pure chance has it, learned.

Requests that come as if their rate were drawn anew every few seconds vary as n + share · n² where Poisson's
vary as n (the negative binomial's variance; measured of services by Wang et al., BurstGPT, arXiv 2401.17644).
Two minutes in a row have nearly the same load, so half the square of their difference is that variance,
whatever the load does over the day.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from contracts.stored import stored
from lambdas.core.scaling.model import LOOK_SECONDS

_KEPT: Final = math.exp(-1 / 1440)
"""Per minute: about a day is remembered."""
_MOST: Final = 1 / 8
"""What differs by more is another load: else one outage would pass all bursts of a day off as chance."""
_SURE: Final = 3.0


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Dispersion:
    """Sums over pairs of minutes, in requests squared: ``beyond`` is the variance that chance leaves over.

    ``squares`` are those of the pairs' means.
    """

    beyond: float = 0.0
    squares: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what nobody can have learned."""
        if not (math.isfinite(self.beyond) and 0 <= self.squares < math.inf):
            raise ValueError(f"variance {self.beyond} beyond chance, squares {self.squares}")

    @property
    def share(self) -> float:
        """The squared coefficient of variation of a minute's rate: 0, where nothing is known, to 1/8."""
        return min(_MOST, max(0.0, self.beyond / self.squares)) if self.squares else 0.0

    def seen(self, before: float, rate: float) -> Dispersion:
        """Return it after two minutes in a row with these requests a second."""
        first, second = before * LOOK_SECONDS, rate * LOOK_SECONDS
        mean = (first + second) / 2
        variance = min((first - second) ** 2 / 2, _SURE**2 * mean + _MOST * mean * mean)
        return Dispersion(self.beyond * _KEPT + variance - mean, self.squares * _KEPT + mean * mean)

    def variance(self, requests: float, seconds: float) -> float:
        """Return that of so many requests, which came or will come within so many seconds."""
        return requests + self.share * requests * requests * LOOK_SECONDS / max(seconds, LOOK_SECONDS)
