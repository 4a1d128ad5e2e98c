"""A group's hourly budget: the highest hourly cost of its instances, whatever a signal says.

The budget counts slots at one price, that of the most expensive instance type that could be launched, bought
On-Demand. So it depends on no Spot price, no queue, no registry and no memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Final

from contracts.limits import Above, AtLeast, Length
from contracts.stored import stored

MAX_RELEASE_HOURS: Final = 24
"""Maximum time for which a budget is released at once."""
MAX_REASON: Final = 200
"""Maximum characters of the reason of a release."""
_EPSILON: Final = 1e-9


@stored(is_open=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyBudget:
    """Maximum hourly cost of a group, in US dollars; 0: unlimited.

    Attributes:
        slot_price: Price of one slot of the most expensive type, On-Demand.
        dollars: Maximum of all instances.
        on_demand_dollars: Maximum of the On-Demand Instances.
        largest: Slots of the largest instance.
        assumed: Instance types whose price is unknown; ``slot_price`` assumes a high one.
    """

    slot_price: Annotated[float, Above(0)]
    dollars: Annotated[float, AtLeast(0)] = 0.0
    on_demand_dollars: Annotated[float, AtLeast(0)] = 0.0
    largest: Annotated[int, AtLeast(1)] = 1
    assumed: tuple[str, ...] = ()

    @property
    def slots(self) -> int | None:
        """Maximum slots of all instances; ``None`` if unlimited."""
        return _slots(self.dollars, self.slot_price)

    @property
    def on_demand_slots(self) -> int | None:
        """Maximum slots of the On-Demand Instances; ``None`` if unlimited."""
        return _slots(self.on_demand_dollars, self.slot_price)


@dataclass(frozen=True, slots=True)
class BudgetRelease:
    """A release of an hourly budget by a person, between two times (epoch seconds)."""

    starts_at: float
    ends_at: float
    reason: Annotated[str, Length(1, MAX_REASON)]

    def is_active(self, now: float) -> bool:
        """Return whether it applies now; one that lasts longer than ``MAX_RELEASE_HOURS`` never does."""
        return self.starts_at <= now < self.ends_at <= self.starts_at + 3600 * MAX_RELEASE_HOURS


def _slots(dollars: float, slot_price: float) -> int | None:
    return math.floor(dollars / slot_price + _EPSILON) if dollars else None
