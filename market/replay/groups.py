"""A capacity group as Auto Scaling sees it: instances, shape, and allocation of Spot launches to pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from contracts.group.warm_pool import on_demand_share
from lambdas.core.model import GroupRole, Pool, PurchaseOption
from market.supply.spot import SpotMarket

SPOT_REFUSAL: Final = (
    "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity due to your request "
    "configuration. Please adjust your request and try again. Launching EC2 instance failed."
)
ON_DEMAND_REFUSAL: Final = (
    "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have "
    "sufficient capacity in the Availability Zone you requested. Our system will be working on provisioning "
    "additional capacity. Launching EC2 instance failed."
)
HEALTH_SECONDS: Final = 60.0
"""Seconds from launch until EC2's health check passes; from experience, AWS gives no time."""
HOOK_SECONDS: Final = 120.0
"""Timeout of the stack's termination hook, during which an instance drains."""


@dataclass(slots=True)
class HeldInstance:
    """An instance as AWS sees it; ``pool`` is its index in the market, ``None`` for On-Demand.

    ``healthy_tick`` is when it passes EC2's health check, long before its workers are ready; ``at_risk``: it
    has a rebalance recommendation; ``rebalanced``: its group terminates it for that reason, at its
    ``deadline``. ``slots`` is its weight in capacity and cost.
    """

    id: str
    side: GroupRole
    market: PurchaseOption
    pool: int | None
    healthy_tick: int
    ready_tick: int
    ready: bool = False
    at_risk: bool = False
    rebalanced: bool = False
    deadline: float | None = None
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Offer:
    """One pool at a tick: its free capacity, and our instances there.

    ``room`` is unknown to a real client: a realistic allocation must try. ``in_zone`` counts our instances of
    all types in its zone; ``at_risk`` and ``calling_back``: one of our instances there has a rebalance
    recommendation or a notice; ``price`` is a fraction of On-Demand.
    """

    pool: int
    room: int
    holding: int
    in_zone: int
    at_risk: bool
    calling_back: bool
    price: float


class Allocation(Protocol):
    """The allocation strategy of a group's Spot launches."""

    def pick(self, offers: list[Offer]) -> int | None:
        """Return the pool to try next in this tick, ``None`` to stop until the next tick."""
        ...

    def refused(self, pool: int) -> None:
        """A launch in the pool failed."""
        ...

    def lost(self, pool: int) -> None:
        """The pool interrupted instances."""
        ...


class Spread:
    """The strategy of an Auto Scaling group: balanced zones, and in a zone the pools with spare capacity.

    Of these the cheapest, as with ``price-capacity-optimized``. A pool with interruption notices is excluded:
    EC2 reclaims Spot capacity if it has no spare. A pool at risk is the last choice.
    """

    def pick(self, offers: list[Offer]) -> int | None:
        """Return the cheapest pool with room in the zone with the fewest of our instances."""
        free = [offer for offer in offers if offer.room > 0 and not offer.calling_back]
        if not free:
            return None
        return min(free, key=self._rank).pool

    def _rank(self, offer: Offer) -> tuple[float, ...]:
        return offer.at_risk, offer.in_zone, offer.price, offer.holding, offer.pool

    def refused(self, pool: int) -> None:
        """See ``Allocation``; its launches never fail."""

    def lost(self, pool: int) -> None:
        """See ``Allocation``; interruptions are not remembered."""


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Settings of a group besides its desired capacities.

    ``pools`` for launches; ``base`` and ``spot_percentage``: the On-Demand share of the primary group;
    ``capacity_rebalance``: a Spot instance is replaced at a recommendation or notice, not after its end;
    ``allocation`` creates the allocation strategy of a run. ``weights`` are the slots of an instance by type,
    default 1. ``separate_targets``: it launches what is below its Spot or On-Demand target whatever it holds
    of the other, as a Spot Fleet does.
    """

    pools: tuple[Pool, ...]
    base: int = 0
    spot_percentage: int = 100
    capacity_rebalance: bool = False
    allocation: Callable[[], Allocation] = Spread
    weights: Mapping[str, int] = field(default_factory=dict)
    separate_targets: bool = False

    def slots_of(self, pool: int) -> int:
        """Return the weight of an instance of a pool."""
        return self.weights.get(self.pools[pool].instance_type, 1)

    def on_demand_of(self, desired: int) -> int:
        """Return the primary group's On-Demand share."""
        return on_demand_share(desired, self.base, self.spot_percentage)


def offers(
    pools: Sequence[Pool], instances: Iterable[HeldInstance], market: SpotMarket, tick: int
) -> list[Offer]:
    """Return each pool's offer at the tick to a group with the instances ``held``."""
    holding, in_zone = Counter[int](), Counter[str]()
    at_risk: set[int] = set()
    calling_back: set[int] = set()
    for instance in instances:
        if instance.pool is not None:
            holding[instance.pool] += 1
            in_zone[pools[instance.pool].zone] += 1
            if instance.at_risk:
                at_risk.add(instance.pool)
            if instance.deadline is not None and not instance.rebalanced:
                calling_back.add(instance.pool)
    return [
        Offer(
            pool=index,
            room=max(0, market.capacity(index, tick) - holding[index]),
            holding=holding[index],
            in_zone=in_zone[pool.zone],
            at_risk=index in at_risk,
            calling_back=index in calling_back,
            price=market.price(index, tick),
        )
        for index, pool in enumerate(pools)
    ]


def on_demand_pools(shape: GroupShape, instances: Iterable[HeldInstance], missing: int) -> Iterator[int]:
    """Yield the pools of On-Demand launches until ``missing`` slots are reached.

    The zone with the fewest instances comes first. The caller adds each instance to ``held`` before the next.
    """
    while missing > 0:
        pool = _quietest(shape.pools, instances)
        missing -= shape.slots_of(pool)
        yield pool


def _quietest(pools: Iterable[Pool], instances: Iterable[HeldInstance]) -> int:
    zones: dict[str, int] = {}
    for index, pool in enumerate(pools):
        zones.setdefault(pool.zone, index)
    counted = sum(h.market is PurchaseOption.ON_DEMAND for h in instances)
    return tuple(zones.values())[counted % len(zones)]
