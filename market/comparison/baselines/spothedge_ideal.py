"""SpotHedge at its best, for a fair comparison: a placer that sees true capacity, and notices acted on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.plan import Plan


@dataclass(frozen=True, slots=True)
class SpotHedgeIdeal:
    """SpotHedge that counts a replica with a notice as lost; the group's own allocation sees capacity."""

    spares: int = 1
    name: ClassVar[str] = "spothedge-ideal"

    def plan(self, situation: Situation) -> Plan:
        """Return target + spares spot, and on-demand for what is not ready and staying of them."""
        wanted = situation.group.target + self.spares
        ready = situation.lasting_primary
        on_demand = min(situation.group.target, max(0, wanted - ready))
        return Plan(on_demand, f"{ready} of {wanted} spot replicas ready and staying", primary=wanted)
