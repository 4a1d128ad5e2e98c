"""The hourly cost of a group's instances, as paid and as On-Demand of the fallback's kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lambdas.core.model import Instance, Observation, PurchaseOption, slots


@dataclass(frozen=True, slots=True)
class HourlyCost:
    """US dollars an hour of the live instances: as paid, and of the same slots if the fallback bought them.

    Without volumes, addresses, data transfer and prepaid reservations.
    """

    paid: float
    on_demand: float


def hourly_cost(
    observation: Observation, on_demand_prices: Mapping[str, float], target: float = math.inf
) -> HourlyCost | None:
    """Return the hourly cost of a group; None if the price of an instance is unknown.

    At most ``target`` slots count at On-Demand prices: a hand-over's successor is not a saving.
    """
    weights = {i.pool.instance_type: i.slots for i in observation.instances}
    slot_prices = [price / weights.get(kind, 1) for kind, price in on_demand_prices.items()]
    paid = 0.0
    for instance in observation.instances:
        hourly_price = hourly_price_of(instance, on_demand_prices, on_demand_prices, observation.spot_prices)
        if hourly_price is None:
            return None
        paid += hourly_price
    replaced = min(slots(observation.instances), target)
    return HourlyCost(paid, replaced * min(slot_prices) if replaced else 0.0)


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
