"""On-Demand prices of GPU instances: Linux, shared tenancy, US dollars per hour.

Source: the page "Amazon EC2 On-Demand Pricing" in public copies, read in November 2026, where two of them
agree. For a type without a price the controller assumes a typical one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

READ_IN: Final = "2026-11"
_REGIONS: Final = ("us-east-1", "us-east-2", "us-west-2")
"""Regions with these prices; others are more expensive."""


def _of(family: str, text: str) -> dict[str, float]:
    pairs = (pair.partition("=") for pair in text.split())
    return {f"{family}.{size}": float(price) for size, _, price in pairs}


_PRICES: Final = {
    **_of("p4d", "24xlarge=21.957642"),
    **_of("p4de", "24xlarge=27.44705"),
    **_of("p5", "48xlarge=55.04"),
    **_of("p5en", "48xlarge=63.296"),
    **_of("g4dn", "xlarge=0.526 2xlarge=0.752 4xlarge=1.204 8xlarge=2.176 12xlarge=3.912 16xlarge=4.352"),
    **_of("g4dn", "metal=7.824"),
    **_of("g5", "xlarge=1.006 2xlarge=1.212 4xlarge=1.624 8xlarge=2.448 12xlarge=5.672 16xlarge=4.096"),
    **_of("g5", "24xlarge=8.144 48xlarge=16.288"),
    **_of("g6", "xlarge=0.8048 2xlarge=0.9776 4xlarge=1.3232 8xlarge=2.0144 12xlarge=4.6016"),
    **_of("g6", "16xlarge=3.3968 24xlarge=6.6752 48xlarge=13.3504"),
    **_of("g6e", "xlarge=1.861 2xlarge=2.24208 4xlarge=3.00424 8xlarge=4.52856 12xlarge=10.49264"),
    **_of("g6e", "16xlarge=7.57719 24xlarge=15.06559 48xlarge=30.13118"),
}


def price(instance_type: str, region: str) -> float | None:
    """Return the On-Demand price of an instance type; None if it is unknown."""
    return _PRICES.get(instance_type) if region in _REGIONS else None


def replacement_prices(
    types: Sequence[str],
    region: str,
    weights: Mapping[str, int],
    *,
    in_order: bool,
    listed: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return the price of the On-Demand capacity that replaces one instance, by its type.

    Source: EC2 Auto Scaling guide, "Allocation strategies" (``prioritized`` and ``lowest-price``).

    Args:
        types: instance types of the group.
        region: AWS Region.
        weights: capacity of an instance by type; 1 if a type is missing.
        in_order: whether the fallback buys the first type; else it buys the cheapest.
        listed: prices of the Region to use instead of those of this module.

    Returns:
        US dollars per hour by type; empty if the price is unknown.
    """
    prices = listed if listed is not None else (_PRICES if region in _REGIONS else {})
    unit_prices = {name: prices[name] / weights.get(name, 1) for name in types if name in prices}
    if not unit_prices or (in_order and types[0] not in unit_prices):
        return {}
    unit_price = unit_prices[types[0]] if in_order else min(unit_prices.values())
    return {name: unit_price * weights.get(name, 1) for name in types}
