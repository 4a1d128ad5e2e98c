"""A mixed-instances group left to itself: on-demand base and percentage, no controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.plan import Plan


@dataclass(frozen=True, slots=True)
class StaticMix:
    """Ask the primary group for the target; its on-demand share is a matter of its shape."""

    name: ClassVar[str] = "static-mix"
    on_demand_percentage: ClassVar[int] = 50

    def plan(self, situation: Situation) -> Plan:
        """Return the target, in the primary group."""
        return Plan(on_demand=0, primary=situation.group.target, reason="the group's own mix")
