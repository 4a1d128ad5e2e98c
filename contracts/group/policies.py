"""Names of the capacity policies, and the parameters of each.

The stack file selects a policy; the controller builds it (``lambdas.core.capacity.policies``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from contracts.sentences import alternatives

EXPECTED_COST: Final = "expected-cost"
READY_HANDOVER: Final = "ready-handover"
DEFAULT: Final = EXPECTED_COST
SHORTAGE_COST: Final = "shortageCost"
"""Cost of one worker-minute of shortage, in On-Demand minutes."""


@dataclass(frozen=True, slots=True)
class PolicyParameter:
    """A number that configures a policy: its default and its minimum."""

    default: float
    minimum: float = 0.0


PARAMETERS: Final[Mapping[str, Mapping[str, PolicyParameter]]] = {
    EXPECTED_COST: {SHORTAGE_COST: PolicyParameter(100.0)},
    READY_HANDOVER: {},
}
"""Parameters of each policy, with their keys in the stack file."""
NAMES: Final = tuple(PARAMETERS)


def check(name: str, parameters: Mapping[str, float] | None = None) -> None:
    """Raise ``ValueError`` for an unknown policy or parameter, or a value below its minimum."""
    if name not in PARAMETERS:
        raise ValueError(f"policy {name!r} is unknown; use {alternatives(NAMES)}")
    allowed = PARAMETERS[name]
    for key, value in (parameters or {}).items():
        if key not in allowed:
            keys = ", ".join(sorted(allowed)) or "none"
            raise ValueError(f"policy {name!r} has no parameter {key!r}; its parameters are: {keys}")
        if not (math.isfinite(value) and value >= allowed[key].minimum):
            raise ValueError(f"{key} must be a number ≥ {allowed[key].minimum:g}, not {value}")
