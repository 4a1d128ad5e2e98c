"""The most that a stack's instances may cost in an hour."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_spot.preflight.stack import with_all_nodes
from infra.catalogue.on_demand_prices import highest_slot_price
from infra.schema import Capacity, Settings


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The highest cost of all instances together, in US dollars an hour.

    ``assumed`` are the instance types without a price, which count as dearer than those that have one.
    """

    usd: float
    assumed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return it as part of a sentence."""
        text = f"at most ${self.usd:,.2f} an hour"
        return f"{text} (assumed: no price of {', '.join(self.assumed)})" if self.assumed else text


def ceiling(settings: Settings) -> Ceiling:
    """Return the sum over all groups of ``max`` times the On-Demand price of the dearest type.

    A higher ``maxPrice`` counts instead. On Kubernetes each node of a job is a slot.
    """
    on_kubernetes = settings.on_kubernetes
    entries = (*on_kubernetes.services, *map(with_all_nodes, on_kubernetes.jobs))
    capacities = [*settings.on_instances.capacities.values(), *(entry.capacity for entry in entries)]
    costs = [cost(capacity, settings.region) for capacity in capacities]
    assumed = {name for _, names in costs for name in names}
    return Ceiling(sum(usd for usd, _ in costs), tuple(sorted(assumed)))


def cost(capacity: Capacity, region: str) -> tuple[float, tuple[str, ...]]:
    """Return the most that a group costs in an hour, and its types whose price is assumed."""
    price, assumed = highest_slot_price(capacity.types, region, capacity.weights)
    # Both are per unit: AWS takes a "maximum price per unit hour" (EC2 API, SpotFleetRequestConfigData).
    return capacity.maximum * max(price, float(capacity.max_price or 0)), assumed
