"""All spot: the group replaces what it loses when it can, nothing stands behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.plan import Plan


@dataclass(frozen=True, slots=True)
class SpotOnly:
    """Hold no on-demand behind the primary group."""

    name: ClassVar[str] = "spot-only"

    def plan(self, situation: Situation) -> Plan:
        """Return the target, in the primary group."""
        return Plan(on_demand=0, primary=situation.group.target, reason="spot only")
