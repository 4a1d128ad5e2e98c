"""All on-demand: the cost that every other is a fraction of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.plan import Plan


@dataclass(frozen=True, slots=True)
class OnDemand:
    """Hold the target on-demand and no spot at all."""

    name: ClassVar[str] = "on-demand"

    def plan(self, situation: Situation) -> Plan:
        """Return the target, on-demand."""
        return Plan(on_demand=situation.group.target, primary=0, reason="on-demand only")
