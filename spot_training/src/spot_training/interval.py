"""How often to save: what a save costs against what an interruption loses."""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from collections.abc import Mapping
from typing import Final

from spot_training.errors import SpotTrainingError

RATE_VARIABLE: Final = "GPU_SPOT_INTERRUPTIONS_PER_HOUR"
RATE: Final = 0.5
"""Interruptions an hour where nobody says: 37 in 69 h of the rehearsed days in docs/performance.md, "A
training job's day" (a market fitted to the public SkyPilot spot traces)."""
MOST_SECONDS: Final = 600.0
OVERHEAD: Final = 0.035
FIRST_SECONDS: Final = 60.0
"""Until the first save, which tells what one costs; sooner where interruptions come fast."""
_REMEMBERED: Final = 5
_log = logging.getLogger("spot_training")


class Interval:
    """Seconds of training between two saves, from how long training stands for one.

    Young's and Daly's optimum for a save of C seconds and M seconds between interruptions is sqrt(2 C M) - C,
    M where C is above M / 2 (Daly, "A higher order estimate of the optimum checkpoint interval", 2006, eq.
    20). Not so often that saving takes more than ``overhead`` of the time, and at least every ``most``
    seconds; where the two conflict ``most`` wins, with a warning. Every interruption counts, announced or
    not: no notice is promised.
    """

    def __init__(
        self,
        *,
        per_hour: float | None = None,
        most: float = MOST_SECONDS,
        overhead: float = OVERHEAD,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``per_hour``: interruptions an hour, by default those of the environment, else ``RATE``."""
        if per_hour is None:
            per_hour = _given(os.environ if environment is None else environment)
        if not (per_hour > 0 and most > 0 and 0 < overhead < 1):
            raise SpotTrainingError(
                f"per_hour is {per_hour}, most {most}, overhead {overhead}; "
                "allowed: above 0, above 0 seconds, between 0 and 1"
            )
        self._between = 3600.0 / per_hour
        self._most = most
        self._overhead = overhead
        self._costs: deque[float] = deque(maxlen=_REMEMBERED)
        self._warned = False

    @property
    def cost(self) -> float | None:
        """Seconds that a save holds training up: the median of the last five; None before the first."""
        return sorted(self._costs)[len(self._costs) // 2] if self._costs else None

    @property
    def seconds(self) -> float:
        """How long to train between the end of a save and the next."""
        cost = self.cost
        if cost is None:
            return min(FIRST_SECONDS, self._between / 10, self._most)
        optimum = math.sqrt(2 * cost * self._between) - cost if cost < self._between / 2 else self._between
        least = cost * (1 / self._overhead - 1)
        if least > self._most and not self._warned:
            _log.warning(
                "a save takes %.2g s: every %.3g s that is %.1f %% of the time, above the bound of %.1f %%; "
                "saved every %.3g s all the same (most=%.3g)",
                *(cost, self._most, 100 * cost / (self._most + cost), 100 * self._overhead),
                *(self._most, self._most),
            )
            self._warned = True
        return min(max(optimum, least), self._most)

    def saved(self, seconds: float) -> None:
        """Note that training stood for so long while it was saved."""
        self._costs.append(max(seconds, 0.0))


def _given(environment: Mapping[str, str]) -> float:
    text = environment.get(RATE_VARIABLE)
    if not text:
        return RATE
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not (math.isfinite(rate) and rate > 0):
        raise SpotTrainingError(f"{RATE_VARIABLE} is {text!r}, allowed: a number above 0")
    return rate
