"""Estimated cost of instances, from public prices; what has no price is counted as seconds without one.

Not included: instances that were lost before they had the job, the time from a job's end until the instance
is gone, volumes, EFS, S3 and traffic. The bill rounds differently and may have discounts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from contracts.jobs.attempt import JobAttempt


@dataclass(frozen=True, slots=True)
class Charge:
    """Instance time in seconds and its cost in US dollars; the sum of parts is that of each field.

    Attributes:
        seconds: All of the time.
        dollars: Its cost. Time without a known Spot price counts at the On-Demand price.
        list_dollars: The same time at the On-Demand list price.
        assumed_seconds: Time that ``dollars`` has at the On-Demand price because its own is not known.
        unpriced_seconds: Time that ``dollars`` does not have: neither price is known.
        unlisted_seconds: Time that ``list_dollars`` does not have: no list price is known.
    """

    seconds: float = 0.0
    dollars: float = 0.0
    list_dollars: float = 0.0
    assumed_seconds: float = 0.0
    unpriced_seconds: float = 0.0
    unlisted_seconds: float = 0.0

    def __add__(self, more: Charge) -> Charge:
        """Return the sum of both."""
        return Charge(
            self.seconds + more.seconds,
            self.dollars + more.dollars,
            self.list_dollars + more.list_dollars,
            self.assumed_seconds + more.assumed_seconds,
            self.unpriced_seconds + more.unpriced_seconds,
            self.unlisted_seconds + more.unlisted_seconds,
        )


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Hourly prices in US dollars. ``spot`` lists prices by type and zone, each from an epoch second on.

    ``on_demand`` returns the list price of a type, None if it is unknown; ``source_of`` its date and source.
    """

    on_demand: Callable[[str], float | None]
    spot: Mapping[tuple[str, str], Sequence[tuple[float, float]]] = field(default_factory=dict)
    source_of: Callable[[str], str] = lambda _: ""

    def charge(self, attempt: JobAttempt, begin: float, end: float) -> Charge:
        """Return the cost of an attempt's instance between two times (epoch seconds).

        Before the first listed Spot price the price is unknown: EC2 lists the price at the start of the
        requested time, too (DescribeSpotPriceHistory). A purchase option other than Spot and On-Demand, or an
        unknown one, counts at the On-Demand price.
        """
        seconds = max(0.0, end - begin)
        hourly = self.on_demand(attempt.instance_type)
        dollars, at_spot_price = self._at_spot_price(attempt, begin, end)
        rest = max(0.0, seconds - at_spot_price)
        is_assumed = hourly is not None and attempt.purchase_option != "on-demand"
        return Charge(
            seconds=seconds,
            dollars=dollars + (hourly or 0.0) * rest / 3600,
            list_dollars=(hourly or 0.0) * seconds / 3600,
            assumed_seconds=rest if is_assumed else 0.0,
            unpriced_seconds=0.0 if hourly is not None else rest,
            unlisted_seconds=0.0 if hourly is not None else seconds,
        )

    def _at_spot_price(self, attempt: JobAttempt, begin: float, end: float) -> tuple[float, float]:
        """Return the cost of the time with a known Spot price, and its seconds."""
        if attempt.purchase_option != "spot":
            return 0.0, 0.0
        prices = sorted(self.spot.get((attempt.instance_type, attempt.zone), ()))
        dollars = seconds = 0.0
        for (since, hourly), (end_at, _) in pairwise([*prices, (end, 0.0)]):
            part = max(0.0, min(end_at, end) - max(since, begin))
            dollars, seconds = dollars + hourly * part / 3600, seconds + part
        return dollars, seconds
