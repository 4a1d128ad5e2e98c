"""The names of the capacity policies and the bounds of their knobs.

The stack file names one, the controller builds it (``lambdas.core.capacity.policies``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

EXPECTED_COST: Final = "expected-cost"
READY_HANDOVER: Final = "ready-handover"
DEFAULT: Final = EXPECTED_COST
SHORTAGE_COST: Final = "shortageCost"
"""What a worker-minute of shortage is worth, in on-demand minutes."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A number of a policy: what it is unless set, and from what on it is allowed."""

    default: float
    least: float = 0.0


KNOBS: Final[Mapping[str, Mapping[str, Knob]]] = {
    EXPECTED_COST: {SHORTAGE_COST: Knob(100.0)},
    READY_HANDOVER: {},
}
"""The knobs of each policy, as they are spelled in the stack file."""
NAMES: Final = tuple(KNOBS)


def check(name: str, knobs: Mapping[str, float] | None = None) -> None:
    """Raise ``ValueError`` for a policy or a knob that is not known, or a knob's value out of its bounds."""
    if name not in KNOBS:
        raise ValueError(f"policy {name!r} is unknown, allowed: {', '.join(NAMES)}")
    allowed = KNOBS[name]
    for knob, value in (knobs or {}).items():
        if knob not in allowed:
            listed = ", ".join(sorted(allowed)) or "none"
            raise ValueError(f"policy {name!r} has no knob {knob!r}, allowed: {listed}")
        if not (math.isfinite(value) and value >= allowed[knob].least):
            raise ValueError(f"{knob} is {value}, a number ≥ {allowed[knob].least:g} is needed")


def shortage_cost(name: str, knobs: Mapping[str, float]) -> float:
    """Return what a worker-minute of shortage is worth; ``inf`` to a policy that knows no price."""
    knob = KNOBS[name].get(SHORTAGE_COST)
    return math.inf if knob is None else float(knobs.get(SHORTAGE_COST, knob.default))
