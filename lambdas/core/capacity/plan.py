"""The one signature behind which capacity policies stand side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from lambdas.core.capacity.group_state import Situation
from lambdas.core.model import Alarm


@dataclass(frozen=True, slots=True)
class Plan:
    """What a policy wants. The safety rules of ``availability`` turn it into actions.

    ``on_demand`` is the number of fallback slots, running or booting; ``primary`` the desired capacity of
    the primary group in slots (``None``: the target). ``wake_at`` is the first moment at which the policy
    may want something else although nothing was observed to change. ``handover`` is false for policies that
    let on-demand go before its successor is ready; they are for comparison. ``alarms`` are what people must
    hear, each as long as it stands here.
    """

    on_demand: int
    reason: str
    primary: int | None = None
    wake_at: float | None = None
    handover: bool = True
    alarms: tuple[Alarm, ...] = ()


class Policy(Protocol):
    """A capacity policy with its knobs bound."""

    name: ClassVar[str]

    def plan(self, situation: Situation) -> Plan:
        """Return what to hold now. Pure: the same situation gives the same plan."""
        ...
