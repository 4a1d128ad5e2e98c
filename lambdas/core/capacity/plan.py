"""Interface of the capacity policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from lambdas.core.capacity.group_state import GroupState
from lambdas.core.model import Alarm

RETRY_SECONDS: Final = 3600.0
"""Maximum time for which a policy requests no Spot capacity while Spot costs less than On-Demand."""


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
        without_spot_seconds: Time for which the policy expects the group to hold no Spot Instance; ``inf`` if
            On-Demand alone is what it wants.
    """

    on_demand: int
    reason: str
    primary: int | None = None
    next_run_at: float | None = None
    handover: bool = True
    alarms: tuple[Alarm, ...] = ()
    without_spot_seconds: float = RETRY_SECONDS


class Policy(Protocol):
    """A capacity policy with its parameters set."""

    name: ClassVar[str]

    def plan(self, state: GroupState) -> Plan:
        """Return the capacity to hold now. Pure: the same state gives the same plan."""
        ...
