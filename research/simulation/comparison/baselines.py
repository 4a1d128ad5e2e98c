"""Baseline policies that no stack can choose: each has shortages, overpays or needs an oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.plan import Plan
from market.replay.groups import Offer


@dataclass(frozen=True, slots=True)
class OnDemand:
    """The whole target on On-Demand, no Spot. Other costs are given as a fraction of its cost."""

    name: ClassVar[str] = "on-demand"

    def plan(self, situation: GroupState) -> Plan:
        """Return the target as On-Demand capacity."""
        return Plan(on_demand=situation.group.target, primary=0, reason="on-demand only")


@dataclass(frozen=True, slots=True)
class SpotOnly:
    """No controller: the group replaces lost instances when there is capacity, with its shape's mix."""

    name: ClassVar[str] = "spot-only"

    def plan(self, situation: GroupState) -> Plan:
        """Return the target, in the primary group."""
        return Plan(on_demand=0, primary=situation.group.target, reason="no controller")


@dataclass(frozen=True, slots=True)
class Checker2018:
    """The policy of 2018: one On-Demand instance per missing Spot instance, until that *launches*.

    It ignores notices, and terminates the On-Demand instance while the Spot instance still boots.
    """

    name: ClassVar[str] = "checker-2018"

    def plan(self, situation: GroupState) -> Plan:
        """Return target − live Spot instances."""
        missing = max(0, situation.group.target - len(situation.primary))
        return Plan(on_demand=missing, reason=f"{missing} spot instances not there", handover=False)


@dataclass(frozen=True, slots=True)
class SpotHedge:
    """SpotHedge (SkyServe, Mao et al., arXiv 2411.01438): spare Spot replicas, On-Demand as fallback.

    It requests ``spares`` Spot replicas more than the target, spread by a *dynamic placer*, and
    min(target, target + spares − ready Spot) On-Demand instances. It ignores notices, or counts an
    interrupted replica as lost.
    """

    spares: int = 0
    acts_on_notices: bool = False
    name: ClassVar[str] = "spothedge"

    def plan(self, situation: GroupState) -> Plan:
        """Return target + spares as Spot, and On-Demand for those that are not ready (and staying)."""
        ready = sum(situation.is_ready(i) for i in situation.primary)
        if self.acts_on_notices:
            ready = situation.stable_primary
        desired = situation.group.target + self.spares
        on_demand = min(situation.group.target, max(0, desired - ready))
        return Plan(on_demand, f"{ready} of {desired} spot replicas ready", primary=desired)


@dataclass(slots=True)
class DynamicPlacer:
    """The dynamic placer: avoids zones with a preemption or failed launch while enough others are left."""

    active: set[int] = field(default_factory=set)
    preempting: set[int] = field(default_factory=set)
    _failed: set[int] = field(default_factory=set)

    def pick(self, offers: list[Offer]) -> int | None:
        """Return the active zone with the fewest replicas and no failed launch in this round of attempts."""
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
        """See ``Allocation``: the zone is skipped for now."""
        self._failed.add(pool)
        self.lost(pool)

    def lost(self, pool: int) -> None:
        """See ``Allocation``: the zone preempts."""
        self.active.discard(pool)
        self.preempting.add(pool)
