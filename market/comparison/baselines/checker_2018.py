"""The availability checker as it was published in 2018: it counts spot instances, not workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.plan import Plan


@dataclass(frozen=True, slots=True)
class Checker2018:
    """Hold on-demand for each spot instance that is not there, and drop it when spot *launches*.

    It waits for the loss where a notice announced it, and lets on-demand go while its successor still boots.
    """

    name: ClassVar[str] = "checker-2018"

    def plan(self, situation: Situation) -> Plan:
        """Return target − live spot instances."""
        missing = max(0, situation.group.target - len(situation.primary))
        return Plan(on_demand=missing, reason=f"{missing} spot instances not there", handover=False)
