"""Regret: the cost of a policy above that of the best policy in the same world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

COST_TOLERANCE: Final = 0.005
"""Relative difference below which two costs count as equal."""
AVAILABILITY_TOLERANCE: Final = 0.00005
"""Difference below which two availabilities count as equal."""


ENDS: Final = ("on-demand", "spot-only")
"""Families that every other can be mixed with."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The result of one policy; ``cost`` is in any one unit."""

    policy: str
    availability: float
    cost: float

    @property
    def family(self) -> str:
        """The policy's name without its parameter."""
        return self.policy.partition("@")[0].partition("+")[0]


def cheapest(marks: Sequence[Mark], availability: float) -> float:
    """Return the minimum cost at an availability: of one policy, or interpolated between two.

    A line runs between two marks of one family, or between one and a mark of `ENDS`. ``inf`` if no policy
    reaches the availability.
    """
    best = min((m.cost for m in marks if m.availability >= availability), default=float("inf"))
    for low in (m for m in marks if m.availability < availability):
        for high in (m for m in marks if m.availability > availability):
            if low.family == high.family or {low.family, high.family} & {*ENDS}:
                share = (availability - low.availability) / (high.availability - low.availability)
                best = min(best, low.cost + share * (high.cost - low.cost))
    return best


def dominates(candidate: Mark, mark: Mark) -> bool:
    """Return whether ``candidate`` is no worse in cost and availability, and better in one of them."""
    if candidate.cost > mark.cost or candidate.availability < mark.availability:
        return False
    cheaper = mark.cost > candidate.cost * (1 + COST_TOLERANCE)
    return cheaper or candidate.availability > mark.availability + AVAILABILITY_TOLERANCE
