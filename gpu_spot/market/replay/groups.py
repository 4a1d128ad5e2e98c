"""What Auto Scaling knows of a capacity group: its instances, its shape, and where it buys spot next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from lambdas.core.model import Market, Pool, Side, on_demand_share

SPOT_REFUSAL: Final = (
    "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity due to your request "
    "configuration. Please adjust your request and try again. Launching EC2 instance failed."
)
ON_DEMAND_REFUSAL: Final = (
    "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have "
    "sufficient capacity in the Availability Zone you requested. Our system will be working on provisioning "
    "additional capacity. Launching EC2 instance failed."
)


@dataclass(slots=True)
class HeldInstance:
    """An instance as AWS knows it; ``pool`` is its index in the market, ``None`` for on-demand."""

    id: str
    side: Side
    market: Market
    pool: int | None
    ready_tick: int
    ready: bool = False
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What is offered in one pool at a tick: how many more it can give, and what we have there.

    ``room`` is the market's secret: an allocation that may not know it must try. ``in_zone`` is what we hold
    of all types in its zone; ``calling_back`` says that an instance of ours there has a notice; ``price`` is
    a fraction of on-demand.
    """

    pool: int
    room: int
    holding: int
    in_zone: int
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
    not chosen: EC2 reclaims spot when it has none to spare there.
    """

    def pick(self, offers: list[Offer]) -> int | None:
        """Return the pool with room whose zone holds fewest of ours, of its types the cheapest."""
        free = [offer for offer in offers if offer.room > 0 and not offer.calling_back]
        if not free:
            return None
        return min(free, key=lambda offer: (offer.in_zone, offer.price, offer.holding, offer.pool)).pool

    def refused(self, pool: int) -> None:
        """See ``Allocation``; it never tries in vain."""

    def lost(self, pool: int) -> None:
        """See ``Allocation``; it does not hold it against the pool."""


@dataclass(frozen=True, slots=True)
class GroupShape:
    """What Auto Scaling is told beside the desired capacities.

    ``pools`` to buy in, ``base`` and ``spot_percentage`` for the on-demand share of the primary group,
    ``capacity_rebalance`` whether it replaces a spot instance at its notice rather than at its end, and how
    it allocates: ``allocation`` makes a fresh one for each run.
    """

    pools: tuple[Pool, ...]
    base: int = 0
    spot_percentage: int = 100
    capacity_rebalance: bool = True
    allocation: Callable[[], Allocation] = Spread

    def on_demand_of(self, desired: int) -> int:
        """Return the primary group's own on-demand share."""
        return on_demand_share(desired, self.base, self.spot_percentage)
