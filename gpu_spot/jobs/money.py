"""Estimated cost of a job's instances, from public prices.

Not included: instances that were lost before they had the job, their volumes, and items without a list
price. The bill rounds differently and may have discounts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from contracts.jobs.attempt import JobAttempt


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Hourly prices in US dollars. ``spot`` lists prices by type and zone, each from an epoch second on.

    ``on_demand`` returns the price of a type, None if it is unknown.
    """

    on_demand: Callable[[str], float | None]
    spot: Mapping[tuple[str, str], Sequence[tuple[float, float]]] = field(default_factory=dict)

    def cost(self, attempt: JobAttempt, begin: float, end: float) -> float | None:
        """Return the cost of an attempt's instance between two times, None if no price is known.

        Before the first known Spot price, that price applies.
        """
        if end <= begin:
            return 0.0
        if attempt.purchase_option != "spot":
            hourly = self.on_demand(attempt.instance_type)
            return None if hourly is None else hourly * (end - begin) / 3600
        prices = sorted(self.spot.get((attempt.instance_type, attempt.zone), ()))
        if not prices:
            return None
        starts = [begin, *(at for at, _ in prices[1:])]
        ends = [*(at for at, _ in prices[1:]), end]
        spans = zip(starts, ends, (price for _, price in prices), strict=True)
        return sum(
            hourly * max(0.0, min(end_at, end) - max(since, begin)) / 3600 for since, end_at, hourly in spans
        )
