"""The hourly cost of a group's instances, as paid and at On-Demand prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.core.model import Instance, Observation, PurchaseOption


@dataclass(frozen=True, slots=True)
class HourlyCost:
    """US dollars an hour of the live instances: as paid, and at On-Demand prices.

    Without volumes, addresses, data transfer and prepaid reservations.
    """

    paid: float
    on_demand: float


def hourly_cost(observation: Observation, on_demand_prices: Mapping[str, float]) -> HourlyCost | None:
    """Return the hourly cost of a group; None if the price of an instance is unknown."""
    paid = on_demand = 0.0
    for instance in observation.instances:
        price = on_demand_prices.get(instance.pool.instance_type)
        hourly_price = hourly_price_of(instance, on_demand_prices, on_demand_prices, observation.spot_prices)
        if price is None or hourly_price is None:
            return None
        paid += hourly_price
        on_demand += price
    return HourlyCost(paid, on_demand)


def hourly_price_of(
    instance: Instance,
    on_demand: Mapping[str, float],
    spot_unit: Mapping[str, float],
    spot_prices: Mapping[str, float],
) -> float | None:
    """Return an instance's hourly price by its type and capacity pool; None if unknown.

    ``spot_prices`` are fractions of ``spot_unit``.
    """
    kind = instance.pool.instance_type
    if instance.purchase_option is PurchaseOption.ON_DEMAND:
        return on_demand.get(kind)
    unit, share = spot_unit.get(kind), spot_prices.get(str(instance.pool))
    return None if unit is None or share is None else unit * share
