"""The checkpoint interval: the cost of a save against the work that an interruption loses."""

from __future__ import annotations

import copy
import math
import os
from collections import deque
from collections.abc import Mapping
from typing import Final

from spot_training.errors import SpotTrainingError, log, say

RATE_VARIABLE: Final = "GPU_SPOT_INTERRUPTIONS_PER_HOUR"
INSTANCE_PRICE_VARIABLE: Final = "GPU_SPOT_INSTANCE_DOLLARS_AN_HOUR"
STORAGE_PRICE_VARIABLE: Final = "GPU_SPOT_STORAGE_DOLLARS_A_GIB"
"""Dollars for writing 2^30 bytes of checkpoints."""
DEFAULT_RATE: Final = 0.5
"""Default interruptions per hour: 37 in 69 h of rehearsals (research/performance.md, "A training job's day";
a market fitted to the public SkyPilot Spot traces)."""
MAX_SECONDS: Final = 600.0
OVERHEAD: Final = 0.035
STORAGE_SHARE: Final = 0.05
"""Maximum price of writing checkpoints, as a share of the instance's price."""
FIRST_SECONDS: Final = 60.0
"""Maximum time until the first save, which measures the cost; shorter if interruptions are frequent."""
_COSTS_REMEMBERED: Final = 5


class Interval:
    """Seconds of training between two saves, from the time for which a save pauses training.

    The optimum for a save of C seconds and M seconds between interruptions is sqrt(2 C M) - C, or M if C is
    above M / 2 (Daly, "A higher order estimate of the optimum checkpoint interval", 2006, eq. 20). Saving
    takes at most ``overhead`` of the time, and the interval is at most ``max_seconds``, which wins, with a
    warning. Where storage charges for writes, they cost at most ``STORAGE_SHARE`` of the instance's price;
    this wins over ``max_seconds``, which holds if only one of the two prices is known.
    """

    def __init__(
        self,
        *,
        per_hour: float | None = None,
        max_seconds: float = MAX_SECONDS,
        overhead: float = OVERHEAD,
        dollars_per_gb: float | None = None,
        dollars_per_hour: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``per_hour``: interruptions per hour; default: that of the environment, else ``DEFAULT_RATE``.

        ``dollars_per_gb``: the storage's price of writing 10^9 bytes; ``dollars_per_hour``: the instance's
        price; default: those of the environment. Without either, storage counts as free.
        """
        environment = os.environ if environment is None else environment
        if per_hour is None:
            has_rate = environment.get(RATE_VARIABLE)
            per_hour = _number_from(environment, RATE_VARIABLE) if has_rate else DEFAULT_RATE
        if dollars_per_gb is None and environment.get(STORAGE_PRICE_VARIABLE):
            dollars_per_gb = _number_from(environment, STORAGE_PRICE_VARIABLE, is_free=True) * 1e9 / 2**30
        if dollars_per_hour is None and environment.get(INSTANCE_PRICE_VARIABLE):
            dollars_per_hour = _number_from(environment, INSTANCE_PRICE_VARIABLE)
        self._unknown_price = _unknown_price(dollars_per_gb, dollars_per_hour)
        dollars_per_gb, dollars_per_hour = dollars_per_gb or 0.0, dollars_per_hour or 0.0
        if not (per_hour > 0 and max_seconds > 0 and 0 < overhead < 1):
            raise SpotTrainingError(
                "per_hour and max_seconds must be above 0, and overhead between 0 and 1; they are "
                f"{per_hour}, {max_seconds} and {overhead}"
            )
        if dollars_per_gb < 0 or dollars_per_hour < 0:
            raise SpotTrainingError(
                "dollars_per_gb and dollars_per_hour must be 0 or more; they are "
                f"{dollars_per_gb} and {dollars_per_hour}"
            )
        self._dollars_per_gb = dollars_per_gb if dollars_per_hour else 0.0
        self._dollars_per_hour = dollars_per_hour
        self._between, self._max_seconds, self._overhead = 3600.0 / per_hour, max_seconds, overhead
        self._size: int | None = None
        self._costs: deque[float] = deque(maxlen=_COSTS_REMEMBERED)
        self._warned = False

    def unpaid(self) -> Interval:
        """Return one without measurements, for storage that charges nothing for writes."""
        unpaid = self.for_nodes(1)
        unpaid._dollars_per_gb, unpaid._size, unpaid._warned = 0.0, None, False
        unpaid._unknown_price = ""
        return unpaid

    def for_nodes(self, count: int) -> Interval:
        """Return one for ``count`` instances that train together: each interruption stops all of them."""
        together = copy.copy(self)
        together._between, together._costs = self._between / count, deque(maxlen=_COSTS_REMEMBERED)
        together._dollars_per_hour = self._dollars_per_hour * count
        return together

    @property
    def cost(self) -> float | None:
        """Seconds for which a save pauses training: the median of the last five; None before the first."""
        return sorted(self._costs)[len(self._costs) // 2] if self._costs else None

    @property
    def seconds(self) -> float:
        """Seconds from the end of a save to the start of the next."""
        cost = self.cost
        if cost is None:
            return min(FIRST_SECONDS, self._between / 10, self._max_seconds)
        optimum = math.sqrt(2 * cost * self._between) - cost if cost < self._between / 2 else self._between
        min_seconds = cost * (1 / self._overhead - 1)
        if min_seconds > self._max_seconds and not self._warned:
            log.warning(
                "a save takes %.2g s: every %.3g s that is %.1f %% of the time, above the limit of %.1f %%; "
                "still saving every %.3g s (max_seconds=%.3g)",
                *(cost, self._max_seconds, 100 * cost / (self._max_seconds + cost), 100 * self._overhead),
                *(self._max_seconds, self._max_seconds),
            )
            self._warned = True
        return max(min(max(optimum, min_seconds), self._max_seconds), self.min_paid_seconds)

    @property
    def min_paid_seconds(self) -> float:
        """Seconds between two saves for which writing costs ``STORAGE_SHARE`` of the instance's price."""
        if self._unknown_price and self._size:
            return self._max_seconds
        paid = STORAGE_SHARE * self._dollars_per_hour
        return 3600.0 * self._save_dollars / paid if self._dollars_per_gb else 0.0

    @property
    def price_seconds(self) -> float:
        """Seconds of the instances' price that a save costs; 0 where writes are free, or before the first."""
        return STORAGE_SHARE * self.min_paid_seconds

    @property
    def _save_dollars(self) -> float:
        return (self._size or 0) / 1e9 * self._dollars_per_gb

    def saved(self, seconds: float) -> None:
        """Record that a save paused training for ``seconds``."""
        self._costs.append(max(seconds, 0.0))

    def copied(self, seconds: float) -> None:
        """Record a copy beside the training; a slow one does not conflict with ``max_seconds``."""
        self.saved(min(seconds, self._max_seconds * self._overhead))

    def wrote(self, size: int) -> None:
        """Record that a save wrote ``size`` bytes; the first one logs its price, if storage has one."""
        is_first, self._size = self._size is None, size
        if is_first and self._unknown_price:
            say(f"{self._unknown_price} is unknown: saves every {self.seconds:.0f} s")
        if is_first and self._dollars_per_gb:
            share = self._save_dollars * 3600.0 / self.seconds / self._dollars_per_hour
            say(
                f"a save writes {self._size / 1e9:.3g} GB for ${self._save_dollars:.3g}: every"
                f" {self.seconds:.0f} s that is {100 * share:.1f} % of the instance's"
                f" ${self._dollars_per_hour:.3g} an hour"
            )


def _unknown_price(dollars_per_gb: float | None, dollars_per_hour: float | None) -> str:
    """Return which price is missing to weigh writing against the instance; empty: none is needed."""
    if dollars_per_gb is None:
        return "" if dollars_per_hour is None else "the price of writing"
    return "the price of the instance" if dollars_per_gb and dollars_per_hour is None else ""


def _number_from(environment: Mapping[str, str], variable: str, *, is_free: bool = False) -> float:
    """Return a variable's number, above 0; ``is_free``: or 0."""
    try:
        number = float(environment[variable])
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and (number > 0 or (is_free and number == 0))):
        allowed = "of 0 or more" if is_free else "above 0"
        raise SpotTrainingError(f"{variable} must be a number {allowed}, not {environment[variable]!r}")
    return number
