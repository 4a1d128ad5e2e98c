"""The policy ``ready-handover``: replace at the notice, return to Spot when the successor is ready."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from contracts.group import policies
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.plan import Plan
from lambdas.core.model import slots


@dataclass(frozen=True, slots=True)
class ReadyHandover:
    """Hold one On-Demand slot for each target slot without a stable primary instance.

    The rule of 2018 counted Spot *requests*: it terminated On-Demand while the successor still booted, and
    replaced an instance only after its loss, even with a notice. This policy counts ready workers without a
    notice.
    """

    name: ClassVar[str] = policies.READY_HANDOVER

    def plan(self, state: GroupState) -> Plan:
        """Return target − stable primary slots."""
        target, stable = state.group.target, state.stable_primary
        interrupted = slots(i for i in state.primary if state.is_interrupted(i))
        return Plan(
            on_demand=max(0, target - stable),
            reason=f"target {target}, {stable} primary stable, {interrupted} interrupted",
        )
