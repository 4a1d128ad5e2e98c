"""Replace at the notice, hand back when the successor is ready."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from contracts.group import policies
from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.plan import Plan
from lambdas.core.model import slots


@dataclass(frozen=True, slots=True)
class ReadyHandover:
    """Hold one on-demand slot for each that no lasting primary instance fills.

    The 2018 rule counted spot *requests*: it let on-demand go while its successor still booted, and waited
    for the loss where a notice had announced it. This one counts ready workers without a notice.
    """

    name: ClassVar[str] = policies.READY_HANDOVER

    def plan(self, situation: Situation) -> Plan:
        """Return target − lasting primary slots."""
        target, lasting = situation.group.target, situation.lasting_primary
        doomed = slots(i for i in situation.primary if situation.is_doomed(i))
        return Plan(
            on_demand=max(0, target - lasting),
            reason=f"target {target}, {lasting} primary ready and staying, {doomed} doomed",
        )
