"""Prices of a forecast and their source: On-Demand by type, Spot by capacity pool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.catalogue import on_demand_prices, price_tables
from infra.schema import Capacity
from lambdas.core.model import Pool

ASSUMED_SPOT: Final = 0.3
"""Default of Spot price ÷ On-Demand price, as in every replay (``market/rules.py``)."""
PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
"""Products of Spot prices: Linux without a license."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in US dollars per hour: On-Demand of the tables at hand, Spot by pool where it is known."""

    region: str
    spot: Mapping[Pool, float] = field(default_factory=dict)

    def slot(self, capacity: Capacity) -> float | None:
        """Return the hourly On-Demand price of a slot as the fallback buys it; None if unknown."""
        in_order = capacity.instance_requirements is None
        prices_by_type = on_demand_prices.replacement_prices(
            capacity.types, self.region, capacity.weights, in_order=in_order
        )
        return min((price / capacity.weights[kind] for kind, price in prices_by_type.items()), default=None)

    def on_demand_price(self, kind: str) -> float | None:
        """Return the hourly On-Demand price of a type."""
        return on_demand_prices.price(kind, self.region)

    def unpriced(self, types: Iterable[str]) -> list[str]:
        """Return the types without an On-Demand price."""
        return [kind for kind in types if self.on_demand_price(kind) is None]

    def sources(self, types: Iterable[str]) -> list[tuple[str, str]]:
        """Return date and source of the types' On-Demand prices, the oldest first."""
        prices = [price_tables.find(kind, self.region) for kind in types]
        return sorted({(price.date, price.source) for price in prices if price is not None})

    def share(self, pool: Pool, capacity: Capacity) -> float | None:
        """Return the Spot price of a slot in a pool as a fraction of the On-Demand price.

        None if the price of the type is unknown.
        """
        slot, on_demand = self.slot(capacity), self.on_demand_price(pool.instance_type)
        spot = self.spot.get(pool, on_demand and ASSUMED_SPOT * on_demand)
        return None if slot is None or spot is None else spot / capacity.weights[pool.instance_type] / slot


def spot_history(text: str) -> dict[Pool, float]:
    """Return each pool's newest price in the output of ``aws ec2 describe-spot-price-history``.

    Raises ``ValueError`` for anything else.
    """
    try:
        return newest(json.loads(text)["SpotPriceHistory"])
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a Spot price history: {type(error).__name__}: {error}") from None


def newest(rows: Iterable[Any]) -> dict[Pool, float]:
    """Return each pool's newest price in records of EC2's history; only Linux products count."""
    newest_by_pool: dict[Pool, tuple[str, float]] = {}
    for row in rows:
        if row["ProductDescription"] in PRODUCTS:
            pool = Pool(str(row["InstanceType"]), str(row["AvailabilityZone"]))
            price_at = (str(row["Timestamp"]), float(row["SpotPrice"]))
            newest_by_pool[pool] = max(price_at, newest_by_pool.get(pool, price_at))
    return {pool: price for pool, (_, price) in newest_by_pool.items()}
