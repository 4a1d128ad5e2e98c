"""For how long a wait is staffed, so that the one allowed is kept: learned from how it was kept so far.

The queueing rule keeps a wait in every minute, by assumptions about chance that no load and no market keep.
What is wanted is one late request in a hundred of all. So the wait that is staffed for follows what was seen,
by quantile tracking (Angelopoulos, Candès, Tibshirani, Conformal PID Control for Time Series Prediction,
NeurIPS 2023): a late request makes it shorter by 99 times as much as one in time makes it longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from contracts.stored import stored
from lambdas.core.scaling.staffing import LATE_SHARE

STEP: Final = 0.03
"""By so much a usual minute of late requests shortens the logarithm; a day without any adds 0.43."""
MOST: Final = 1.5
"""At most 4.5 times as long or as short: what is late beyond it is late for another cause."""
_DAY: Final = 1440.0
_MOST_WEIGHT: Final = 3.0


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class StaffedWait:
    """``log`` is the logarithm of the wait staffed for ÷ the one allowed.

    ``usual`` are the requests a second of a minute with requests, a mean of about a day of them.
    """

    log: float = 0.0
    usual: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what nobody can have learned."""
        if not (-MOST <= self.log <= MOST and 0 <= self.usual < math.inf):
            raise ValueError(f"logarithm {self.log}, {self.usual} requests a second")

    @property
    def factor(self) -> float:
        """How many times the allowed wait is staffed for."""
        return math.exp(self.log)

    def seen(self, rate: float, *, late: bool) -> StaffedWait:
        """Return it after a minute in which so many requests a second were begun, ``late`` or in time."""
        if rate <= 0:
            return self
        usual = self.usual + (rate - self.usual) / _DAY if self.usual else rate
        weight = min(rate / usual, _MOST_WEIGHT)
        moved = self.log + STEP * weight * (LATE_SHARE - (1.0 if late else 0.0))
        return StaffedWait(min(MOST, max(-MOST, moved)), usual)
