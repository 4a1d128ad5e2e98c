"""What a group's instances cost an hour now, and what they would on-demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.core.model import Instance, Market, Observation


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
        own = price_of(instance, on_demand_prices, on_demand_prices, observation.spot_prices)
        if price is None or own is None:
            return None
        paid += own
        on_demand += price
    return HourlyCost(paid, on_demand)


def price_of(
    instance: Instance,
    on_demand: Mapping[str, float],
    spot_unit: Mapping[str, float],
    spot_prices: Mapping[str, float],
) -> float | None:
    """Return what an instance costs an hour, by its type and pool; None where nobody knows.

    ``spot_prices`` are fractions of ``spot_unit``.
    """
    kind = instance.pool.instance_type
    if instance.market is Market.ON_DEMAND:
        return on_demand.get(kind)
    unit, share = spot_unit.get(kind), spot_prices.get(str(instance.pool))
    return None if unit is None or share is None else unit * share
