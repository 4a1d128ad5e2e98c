"""What a job's instances cost, as well as it can be known: an estimate by public prices, no bill.

Not in it: what an instance cost that was lost before it had the job, its disks, and what a price list does
not name. A bill rounds otherwise, and discounts of an account are its own matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from contracts.jobs.attempt import JobAttempt


@dataclass(frozen=True, slots=True)
class PriceBook:
    """US dollars an hour. ``spot`` has prices by type and zone, each from a time (epoch seconds) on.

    ``on_demand`` returns a type's price, None where nobody knows.
    """

    on_demand: Callable[[str], float | None]
    spot: Mapping[tuple[str, str], Sequence[tuple[float, float]]] = field(default_factory=dict)

    def cost(self, stint: JobAttempt, begin: float, end: float) -> float | None:
        """Return what a stint's instance cost between two times, None where no price is known.

        Before the first known price of spot that one counts.
        """
        if end <= begin:
            return 0.0
        if stint.market != "spot":
            hourly = self.on_demand(stint.instance_type)
            return None if hourly is None else hourly * (end - begin) / 3600
        known = sorted(self.spot.get((stint.instance_type, stint.zone), ()))
        if not known:
            return None
        starts = [begin, *(at for at, _ in known[1:])]
        ends = [*(at for at, _ in known[1:]), end]
        spans = zip(starts, ends, (price for _, price in known), strict=True)
        return sum(
            hourly * max(0.0, min(until, end) - max(since, begin)) / 3600 for since, until, hourly in spans
        )
