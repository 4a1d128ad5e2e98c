"""How far a policy is from the best that any policy shows in the same world."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

COST_TOLERANCE: Final = 0.005
"""A cost that differs by less, as a fraction, is the same cost."""
AVAILABILITY_TOLERANCE: Final = 0.00005
"""An availability that differs by less is the same availability."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What one policy came to; ``family`` is the policy without its knob, ``cost`` is in any one unit."""

    policy: str
    family: str
    availability: float
    cost: float


def cheapest(marks: Sequence[Mark], ends: Iterable[str], availability: float) -> float:
    """Return the least cost at an availability: of a policy that has it, or straight between two.

    A line runs between two marks of one family, or between one and a mark of the families ``ends``.
    ``inf`` where nothing is so available.
    """
    best = min((m.cost for m in marks if m.availability >= availability), default=float("inf"))
    last = set(ends)
    for low in (m for m in marks if m.availability < availability):
        for high in (m for m in marks if m.availability > availability):
            if low.family == high.family or last & {low.family, high.family}:
                share = (availability - low.availability) / (high.availability - low.availability)
                best = min(best, low.cost + share * (high.cost - low.cost))
    return best


def dominates(candidate: Mark, mark: Mark) -> bool:
    """Say whether ``other`` is no dearer and no less available, and better than the tolerance in one."""
    if candidate.cost > mark.cost or candidate.availability < mark.availability:
        return False
    cheaper = mark.cost > candidate.cost * (1 + COST_TOLERANCE)
    return cheaper or candidate.availability > mark.availability + AVAILABILITY_TOLERANCE
