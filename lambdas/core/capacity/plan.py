"""Interface of the capacity policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from lambdas.core.capacity.group_state import GroupState
from lambdas.core.model import Alarm


@dataclass(frozen=True, slots=True)
class Plan:
    """Capacity that a policy requests; the safety rules of ``availability`` turn it into actions.

    Attributes:
        on_demand: Slots of the fallback group, running or booting.
        primary: Desired capacity of the primary group in slots; ``None``: the target.
        next_run_at: First time at which the plan may change without a change of the observation.
        handover: Whether to keep On-Demand instances until their successors are ready. False only in policies
            for comparison.
        alarms: Alarms, each active as long as the plan contains it.
    """

    on_demand: int
    reason: str
    primary: int | None = None
    next_run_at: float | None = None
    handover: bool = True
    alarms: tuple[Alarm, ...] = ()


class Policy(Protocol):
    """A capacity policy with its parameters set."""

    name: ClassVar[str]

    def plan(self, state: GroupState) -> Plan:
        """Return the capacity to hold now. Pure: the same state gives the same plan."""
        ...
