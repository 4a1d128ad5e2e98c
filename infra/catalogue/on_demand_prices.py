"""On-Demand prices of instance types: Linux, shared tenancy, US dollars per hour.

They are those of ``price_tables.py``. For a type without a price the controller assumes a typical one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from infra.catalogue import accelerators, price_tables


def price(instance_type: str, region: str) -> float | None:
    """Return the On-Demand price of an instance type; None if it is unknown."""
    listed = price_tables.find(instance_type, region)
    return None if listed is None else listed.usd


ASSUMED_ACCELERATOR_PRICE: Final = 25.0
"""Assumed On-Demand price of an accelerator of a type without a price: above that of the most expensive one.

The most expensive in the tables is that of a p6-b300.48xlarge, 21.36 dollars per hour.
"""
ASSUMED_CPU_PRICE: Final = 40.0
"""Assumed price of a type without accelerators: above that of an r8i.96xlarge, about 27 dollars per hour."""
ASSUMED_REGION_FACTOR: Final = 2.0
"""Assumed factor on the highest known price of a type that its Region has no price for.

The highest price of a type in the tables is at most 1.7 times its lowest (São Paulo).
"""


def highest_slot_price(
    types: Sequence[str], region: str, weights: Mapping[str, int]
) -> tuple[float, tuple[str, ...]]:
    """Return the On-Demand price of a slot of the most expensive type, and the types of assumed price.

    Args:
        types: instance types that may be launched.
        region: AWS Region.
        weights: slots of an instance by type.
    """
    assumed = tuple(name for name in types if price(name, region) is None)
    prices = {name: price(name, region) or _assumed_price(name) for name in types}
    return max(prices[name] / weights[name] for name in types), assumed


def _assumed_price(name: str) -> float:
    if (highest := price_tables.highest(name)) is not None:
        return ASSUMED_REGION_FACTOR * highest
    if name.partition(".")[0] in accelerators.FAMILIES:
        return ASSUMED_ACCELERATOR_PRICE * accelerators.lookup(name).accelerators
    return ASSUMED_CPU_PRICE


def replacement_prices(
    types: Sequence[str], region: str, weights: Mapping[str, int], *, in_order: bool
) -> dict[str, float]:
    """Return the price of the On-Demand capacity that replaces one instance, by its type.

    Source: EC2 Auto Scaling guide, "Allocation strategies" (``prioritized`` and ``lowest-price``).

    Args:
        types: instance types of the group.
        region: AWS Region.
        weights: capacity of an instance by type; 1 if a type is missing.
        in_order: whether the fallback buys the first type; else it buys the cheapest.

    Returns:
        US dollars per hour by type; empty if the price is unknown.
    """
    prices = {name: price(name, region) for name in types}
    unit_prices = {
        name: dollars / weights.get(name, 1) for name, dollars in prices.items() if dollars is not None
    }
    if not unit_prices or (in_order and types[0] not in unit_prices):
        return {}
    unit_price = unit_prices[types[0]] if in_order else min(unit_prices.values())
    return {name: unit_price * weights.get(name, 1) for name in types}
