"""SpotHedge (SkyServe, Mao et al., arXiv 2411.01438): spare spot over zones, and on-demand behind it.

It asks for ``spares`` spot replicas more than the target, spread by a *dynamic placer* that remembers which
zones preempted or refused it, and holds min(target, target + spares − ready spot) on-demand: *dynamic
fallback*. It does not know of notices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.plan import Plan
from market.replay.groups import Offer


@dataclass(frozen=True, slots=True)
class SpotHedge:
    """Over-provisioned spot and dynamic on-demand fallback."""

    spares: int = 1
    name: ClassVar[str] = "spothedge"

    def plan(self, situation: Situation) -> Plan:
        """Return target + spares spot, and on-demand for what is not ready of them."""
        wanted = situation.group.target + self.spares
        ready = sum(situation.is_ready(i) for i in situation.primary)
        on_demand = min(situation.group.target, max(0, wanted - ready))
        return Plan(on_demand, f"{ready} of {wanted} spot replicas ready", primary=wanted)


@dataclass(slots=True)
class DynamicPlacer:
    """Which zone to try next: one that preempted or refused us only when few others are left."""

    active: set[int] = field(default_factory=set)
    preempting: set[int] = field(default_factory=set)
    _failed: set[int] = field(default_factory=set)

    def pick(self, offers: list[Offer]) -> int | None:
        """Return the active zone with fewest replicas that has not refused in this round of attempts."""
        for offer in offers:
            if offer.pool not in self.preempting:
                self.active.add(offer.pool)
        if len(self.active) < 2:
            self.active |= self.preempting
            self.preempting.clear()
        choice = [offer for offer in offers if offer.pool in self.active - self._failed]
        if not choice:
            self._failed.clear()
            return None
        return min(choice, key=lambda offer: (offer.holding, offer.pool)).pool

    def refused(self, pool: int) -> None:
        """See ``Allocation``: the zone is left alone for now."""
        self._failed.add(pool)
        self.lost(pool)

    def lost(self, pool: int) -> None:
        """See ``Allocation``: the zone preempts."""
        self.active.discard(pool)
        self.preempting.add(pool)
