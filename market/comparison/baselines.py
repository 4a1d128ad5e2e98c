"""Policies to compare with. They are not offered to a stack: each starves, overpays, or knows too much."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.plan import Plan
from market.replay.groups import Offer


@dataclass(frozen=True, slots=True)
class OnDemand:
    """Hold the target on-demand and no spot at all: the cost that every other is a fraction of."""

    name: ClassVar[str] = "on-demand"

    def plan(self, situation: GroupState) -> Plan:
        """Return the target, on-demand."""
        return Plan(on_demand=situation.group.target, primary=0, reason="on-demand only")


@dataclass(frozen=True, slots=True)
class SpotOnly:
    """Hold nothing behind the primary group, which replaces what it loses when it can."""

    name: ClassVar[str] = "spot-only"

    def plan(self, situation: GroupState) -> Plan:
        """Return the target, in the primary group."""
        return Plan(on_demand=0, primary=situation.group.target, reason="spot only")


@dataclass(frozen=True, slots=True)
class StaticMix:
    """A mixed-instances group without a controller: its on-demand share is a matter of its shape."""

    name: ClassVar[str] = "static-mix"
    on_demand_percentage: ClassVar[int] = 50

    def plan(self, situation: GroupState) -> Plan:
        """Return the target, in the primary group."""
        return Plan(on_demand=0, primary=situation.group.target, reason="the group's own mix")


@dataclass(frozen=True, slots=True)
class Checker2018:
    """Of 2018: hold on-demand for each spot instance that is not there, and drop it when spot *launches*.

    It waits for the loss where a notice announced it, and lets on-demand go while its successor still boots.
    """

    name: ClassVar[str] = "checker-2018"

    def plan(self, situation: GroupState) -> Plan:
        """Return target − live spot instances."""
        missing = max(0, situation.group.target - len(situation.primary))
        return Plan(on_demand=missing, reason=f"{missing} spot instances not there", handover=False)


@dataclass(frozen=True, slots=True)
class SpotHedge:
    """SpotHedge (SkyServe, Mao et al., arXiv 2411.01438): spare spot over zones, and on-demand behind it.

    It asks for ``spares`` spot replicas more than the target, spread by a *dynamic placer*, and holds
    min(target, target + spares − ready spot) on-demand. It does not know of notices.
    """

    spares: int = 1
    name: ClassVar[str] = "spothedge"

    def plan(self, situation: GroupState) -> Plan:
        """Return target + spares spot, and on-demand for what is not ready of them."""
        return self._behind(situation, sum(situation.is_ready(i) for i in situation.primary), "ready")

    def _behind(self, situation: GroupState, ready: int, reason: str) -> Plan:
        desired = situation.group.target + self.spares
        on_demand = min(situation.group.target, max(0, desired - ready))
        return Plan(on_demand, f"{ready} of {desired} spot replicas {reason}", primary=desired)


@dataclass(frozen=True, slots=True)
class SpotHedgeIdeal(SpotHedge):
    """SpotHedge at its best: a replica with a notice counts as lost; the group's allocation sees capacity."""

    name: ClassVar[str] = "spothedge-ideal"

    def plan(self, situation: GroupState) -> Plan:
        """Return target + spares spot, and on-demand for what is not ready and staying of them."""
        return self._behind(situation, situation.stable_primary, "ready and staying")


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
