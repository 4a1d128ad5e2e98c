"""The most that a stack's instances may cost in an hour."""

from __future__ import annotations

from dataclasses import dataclass

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
    capacities = [(capacity, 1) for capacity in settings.on_instances.capacities.values()]
    on_kubernetes = settings.on_kubernetes
    capacities += [(service.capacity, 1) for service in on_kubernetes.services]
    capacities += [(job.capacity, job.nodes.max) for job in on_kubernetes.jobs]
    costs = [(times, *cost(capacity, settings.region)) for capacity, times in capacities]
    return Ceiling(
        sum(times * usd for times, usd, _ in costs),
        tuple(sorted({name for *_, assumed in costs for name in assumed})),
    )


def cost(capacity: Capacity, region: str) -> tuple[float, tuple[str, ...]]:
    """Return the most that a group costs in an hour, and its types whose price is assumed."""
    price, assumed = highest_slot_price(capacity.types, region, capacity.weights)
    # Both are per unit: AWS takes a "maximum price per unit hour" (EC2 API, SpotFleetRequestConfigData).
    return capacity.maximum * max(price, float(capacity.max_price or 0)), assumed
