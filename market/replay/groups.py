"""What Auto Scaling knows of a capacity group: its instances, its shape, and where it buys spot next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from contracts.group.on_demand_share import on_demand_share
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
"""From a launch until EC2's health check passes. AWS names no time; about a minute is experience."""
HOOK_SECONDS: Final = 120.0
"""How long the stack's termination hook holds an instance, whose work drains meanwhile."""


@dataclass(slots=True)
class HeldInstance:
    """An instance as AWS knows it; ``pool`` is its index in the market, ``None`` for on-demand.

    ``healthy_tick`` is when it passes EC2's health check, long before its workers are ready; ``at_risk`` says
    that EC2 recommends to replace it; ``rebalanced`` that its group ends it for that, at its ``deadline``.
    ``slots`` is for how much of a capacity it counts, and how much it costs.
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
    """What is offered in one pool at a tick: how many more it can give, and what we have there.

    ``room`` is the market's secret: an allocation that may not know it must try. ``in_zone`` is what we hold
    of all types in its zone; ``at_risk`` and ``calling_back`` say that an instance of ours there has a
    rebalance recommendation or a notice; ``price`` is a fraction of on-demand.
    """

    pool: int
    room: int
    holding: int
    in_zone: int
    at_risk: bool
    calling_back: bool
    price: float


class Allocation(Protocol):
    """Where a group tries to buy spot."""

    def pick(self, offers: list[Offer]) -> int | None:
        """Return the pool to try next in this tick, ``None`` to give up until the next."""
        ...

    def refused(self, pool: int) -> None:
        """The pool had nothing to give."""
        ...

    def lost(self, pool: int) -> None:
        """The pool took instances of ours."""
        ...


class Spread:
    """What an Auto Scaling group does: zones in balance, and within them where EC2 has capacity to spare.

    Of these the cheapest, as with ``price-capacity-optimized``. A pool that calls instances of ours back is
    not chosen: EC2 reclaims spot when it has none to spare there. One at risk is the last choice.
    """

    def pick(self, offers: list[Offer]) -> int | None:
        """Return the pool with room whose zone holds fewest of ours, of its types the cheapest."""
        free = [offer for offer in offers if offer.room > 0 and not offer.calling_back]
        if not free:
            return None
        return min(free, key=self._rank).pool

    def _rank(self, offer: Offer) -> tuple[float, ...]:
        return offer.at_risk, offer.in_zone, offer.price, offer.holding, offer.pool

    def refused(self, pool: int) -> None:
        """See ``Allocation``; it never tries in vain."""

    def lost(self, pool: int) -> None:
        """See ``Allocation``; it does not hold it against the pool."""


@dataclass(frozen=True, slots=True)
class GroupShape:
    """What Auto Scaling receives besides the desired capacities.

    ``pools`` to buy in, ``base`` and ``spot_percentage`` for the on-demand share of the primary group,
    ``capacity_rebalance`` whether it replaces a spot instance at a recommendation or its notice rather than
    after its end, and how it allocates: ``allocation`` makes a fresh one for each run. ``weights`` are slots
    of an instance by its type, 1 where none is named.
    """

    pools: tuple[Pool, ...]
    base: int = 0
    spot_percentage: int = 100
    capacity_rebalance: bool = False
    allocation: Callable[[], Allocation] = Spread
    weights: Mapping[str, int] = field(default_factory=dict)

    def slots_of(self, pool: int) -> int:
        """Return for how much an instance of a pool counts."""
        return self.weights.get(self.pools[pool].instance_type, 1)

    def on_demand_of(self, desired: int) -> int:
        """Return the primary group's own on-demand share."""
        return on_demand_share(desired, self.base, self.spot_percentage)


def offers(
    pools: Sequence[Pool], instances: Iterable[HeldInstance], market: SpotMarket, tick: int
) -> list[Offer]:
    """Return what each pool offers at the tick to a group that holds ``held``."""
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
    """Yield where one on-demand instance after the other goes, until ``missing`` slots are reached.

    Zones in turn, by how many of ours they hold. Each instance stands in ``held`` before the next.
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
