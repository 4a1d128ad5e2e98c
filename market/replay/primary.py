"""The primary group under Auto Scaling: its next launches, and terminations of replaced instances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lambdas.core.model import GroupRole, Pool, PurchaseOption
from market.replay.groups import GroupShape, HeldInstance, offers, on_demand_pools
from market.rules import Rules, ticks
from market.supply.spot import SpotMarket


class PrimaryGroup:
    """Decides launches and terminations; the engine holds the instances.

    With Capacity Rebalancing an instance is replaced at a recommendation, and at once at its notice.
    Otherwise an instance counts until it has terminated and its health check fails. Source: Auto Scaling
    guide, "Capacity Rebalancing in Auto Scaling to replace at-risk Spot Instances".
    """

    def __init__(self, shape: GroupShape, market: SpotMarket, rules: Rules) -> None:
        """``retry_tick``: next attempt after a failed launch; ``short``: the last Spot launch failed."""
        self.shape, self.market, self.rules = shape, market, rules
        self.retry_tick = 0
        self.short = False
        self._allocation = shape.allocation()
        self._unnoticed: list[tuple[int, int]] = []
        self._tried = 0

    def lost(self, interrupted: Iterable[HeldInstance], tick: int) -> int:
        """Process interruptions; return when the health check finds those that are not replaced yet."""
        noticed_at = tick + ticks(self.rules.replace_seconds)
        for instance in interrupted:
            if instance.pool is not None:
                self._allocation.lost(instance.pool)
            if not self._is_replaced(instance):
                self._unnoticed.append((noticed_at, instance.slots))
        return noticed_at

    def ending(self, instances: Iterable[HeldInstance], desired: int, tick: int) -> list[HeldInstance]:
        """Return the instances to terminate now: at risk, with a successor that passed EC2's health check."""
        if not self.shape.capacity_rebalance:
            return []
        without_notice = [h for h in instances if h.side is GroupRole.PRIMARY and h.deadline is None]
        surplus = sum(h.healthy_tick <= tick for h in without_notice) - desired
        return [h for h in without_notice if h.at_risk][: max(0, surplus)]

    def buys(
        self, instances: Sequence[HeldInstance], desired: int, tick: int
    ) -> Iterator[tuple[int, PurchaseOption]]:
        """Yield pool and purchase option of each launch; the caller adds it to ``held`` before the next."""
        counted = [h for h in instances if h.side is GroupRole.PRIMARY and not self._is_replaced(h)]
        self._unnoticed = [lost for lost in self._unnoticed if lost[0] > tick]
        missing = desired - sum(h.slots for h in counted) - sum(slots for _, slots in self._unnoticed)
        owned = sum(h.slots for h in counted if h.market is PurchaseOption.ON_DEMAND)
        on_demand = self.shape.on_demand_of(desired) - owned
        missing_spot = missing - on_demand
        if not self.shape.separate_targets:
            on_demand = min(missing, on_demand)
        for pool in on_demand_pools(self.shape, instances, on_demand):
            yield pool, PurchaseOption.ON_DEMAND
            missing -= self.shape.slots_of(pool)
        if self.shape.separate_targets:
            missing = missing_spot
        if missing > 0 and tick < self.retry_tick and desired == self._tried:
            return
        while missing > 0:
            offered = offers(self.shape.pools, instances, self.market, tick)
            picked = self._allocation.pick(offered)
            if picked is None:
                break
            if offered[picked].room < 1:
                self._allocation.refused(picked)
                continue
            yield picked, PurchaseOption.SPOT
            missing -= self.shape.slots_of(picked)
        self._tried = desired
        self.short = missing > 0
        self.retry_tick = tick + ticks(self.rules.retry_seconds) if self.short else 0

    def sold_in(self, zone: str, instances: Sequence[HeldInstance], tick: int) -> Pool | None:
        """Return the pool of a zone that a Spot launch gets; ``None`` without room."""
        pools = self.shape.pools
        offered = offers(pools, instances, self.market, tick)
        picked = self._allocation.pick([o for o in offered if o.room > 0 and pools[o.pool].zone == zone])
        return None if picked is None else pools[picked]

    def tried_again(self, tick: int) -> bool:
        """Return whether a launch attempt has just failed; each failure is reported once."""
        return self.short and self.retry_tick == tick + ticks(self.rules.retry_seconds)

    def _is_replaced(self, instance: HeldInstance) -> bool:
        return self.shape.capacity_rebalance and (instance.at_risk or instance.deadline is not None)
