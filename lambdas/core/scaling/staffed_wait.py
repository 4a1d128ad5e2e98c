"""The wait that the service is staffed for, adjusted so that at most 1 % of all requests are late.

The queueing rule limits the wait in every minute under assumptions that neither a real load nor the Spot
market meets. The staffed wait corrects it by quantile tracking: a late request shortens it by 142 times
as much as a request in time lengthens it. Source: Angelopoulos, Candès, Tibshirani, Conformal PID Control for
Time Series Prediction, NeurIPS 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from contracts.stored import stored
from lambdas.core.scaling.staffing import LATE_SHARE

TRACKED_SHARE: Final = 0.7 * LATE_SHARE
"""The share of late requests that is tracked: less than the allowed one, because the wait follows late.

Of 1 % tracked, 1.2 to 1.4 % of a week's requests were late: Spot was plentiful the days before.
"""
STEP: Final = 0.03
"""Decrease of the logarithm by a usual minute of late requests; a day without any adds 0.3."""
MAX_LOG_FACTOR: Final = 1.5
"""Maximum absolute logarithm: a factor of 4.5 either way; lateness beyond it has another cause."""
_DAY_MINUTES: Final = 1440.0
_MAX_WEIGHT: Final = 3.0


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class StaffedWait:
    """The ratio of the staffed wait to the allowed wait, as a logarithm.

    ``usual_rate`` is the mean of the requests a second in minutes with requests, over about a day.
    """

    log_factor: float = 0.0
    usual_rate: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        if not (-MAX_LOG_FACTOR <= self.log_factor <= MAX_LOG_FACTOR and 0 <= self.usual_rate < math.inf):
            raise ValueError(
                f"log_factor must be from -{MAX_LOG_FACTOR} to {MAX_LOG_FACTOR}, and usual_rate 0 or more, "
                f"not {self.log_factor} and {self.usual_rate}"
            )

    @property
    def factor(self) -> float:
        """The staffed wait divided by the allowed wait."""
        return math.exp(self.log_factor)

    def update(self, rate: float, *, late: bool) -> StaffedWait:
        """Return the state after a minute with ``rate`` started requests a second, ``late`` or in time."""
        if rate <= 0:
            return self
        usual_rate = self.usual_rate + (rate - self.usual_rate) / _DAY_MINUTES if self.usual_rate else rate
        weight = min(rate / usual_rate, _MAX_WEIGHT)
        log_factor = self.log_factor + STEP * weight * (TRACKED_SHARE - (1.0 if late else 0.0))
        return StaffedWait(min(MAX_LOG_FACTOR, max(-MAX_LOG_FACTOR, log_factor)), usual_rate)
