"""What a group's instances cost an hour now, and what they would on-demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.core.model import Market, Observation


@dataclass(frozen=True, slots=True)
class HourlyCost:
    """US dollars an hour of the live instances: as they are paid, and as on-demand in their place would be.

    Volumes, addresses and traffic are not in it, nor what a reservation has paid.
    """

    paid: float
    on_demand: float


def hourly(observation: Observation, on_demand_prices: Mapping[str, float]) -> HourlyCost | None:
    """Return what the group costs; None where the price of one of its instances is not known."""
    paid = on_demand = 0.0
    for instance in observation.instances:
        price = on_demand_prices.get(instance.pool.instance_type)
        share = (
            1.0 if instance.market is Market.ON_DEMAND else observation.spot_prices.get(str(instance.pool))
        )
        if price is None or share is None:
            return None
        paid += price * share
        on_demand += price
    return HourlyCost(paid, on_demand)
