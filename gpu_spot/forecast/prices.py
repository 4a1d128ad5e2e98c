"""Prices of a forecast and their source: On-Demand by type, Spot by capacity pool."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_spot.forecast.ranges import Range
from infra.catalogue import on_demand_prices, price_tables
from infra.catalogue.price_tables import SPOT_HIGH, SPOT_LOW, SPOT_MEAN, ListPrice
from infra.schema import Capacity
from lambdas.core.model import Pool

ASSUMED_SPOT: Final = Range(0.2, 0.4, 0.7)
"""Spot price ÷ On-Demand price of a type without a price. Of 553 types and regions of AWS's Spot Instance
Advisor (June 2025) nine in ten are above 0.14, nine in ten below 0.46; in 2026 they were a tenth dearer."""
DRIFT: Final = Range(0.65, 1.1, 2.0)
"""Spot price of a zone ÷ a region's mean of a month, about a year later: nine in ten lowest zones are above
the lower, nine in ten highest below the upper end. Source: 26 types and regions of the Spot Instance Advisor
in June 2025 and of SkyPilot's catalogue in 2026 (``prices.json``)."""
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

    def spot_sources(self, types: Iterable[str]) -> list[tuple[str, str]]:
        """Return date and source of the types' shipped Spot prices, the oldest first."""
        recorded = [self._recorded(kind) for kind in types]
        return sorted({(listed[0].date, listed[0].source) for listed in recorded if listed})

    def assumed(self, types: Iterable[str], zones: Collection[str]) -> list[str]:
        """Return the types whose Spot price is assumed in some of these zones: no table has it."""
        unlisted = [kind for kind in types if not self._recorded(kind)]
        return [kind for kind in unlisted if any(Pool(kind, zone) not in self.spot for zone in zones)]

    def share(self, pool: Pool, capacity: Capacity) -> Range:
        """Return the Spot price of a slot in a pool as a fraction of the On-Demand price of the fallback.

        A price of the account is one value, a shipped one varies over zones and time; without any price it is
        ``ASSUMED_SPOT``.
        """
        slot, on_demand = self.slot(capacity), self.on_demand_price(pool.instance_type)
        if slot is None or (on_demand is None and pool not in self.spot):
            return ASSUMED_SPOT
        usd, recorded = self.spot.get(pool), self._recorded(pool.instance_type)
        if usd is not None:
            dollars = Range(usd, usd, usd)
        elif len(recorded) == 2:
            low, high = (listed.usd for listed in recorded)
            dollars = Range(low, (low + high) / 2, high)
        elif recorded:
            dollars = DRIFT.times(recorded[0].usd)
        else:
            dollars = ASSUMED_SPOT.times(on_demand or 0.0)
        return dollars.times(1 / capacity.weights[pool.instance_type] / slot)

    def _recorded(self, kind: str) -> tuple[ListPrice, ...]:
        """Return the newest of a type's zone prices (lowest and highest) and its mean; empty without any."""
        low, high, mean = (
            price_tables.find(f"{k}{kind}", self.region) for k in (SPOT_LOW, SPOT_HIGH, SPOT_MEAN)
        )
        if low is not None and high is not None and (mean is None or low.date >= mean.date):
            return low, high
        return () if mean is None else (mean,)


def spot_history(text: str) -> dict[Pool, float]:
    """Return each pool's newest price in the output of ``aws ec2 describe-spot-price-history``.

    Raises ``ValueError`` for anything else.
    """
    try:
        return newest(json.loads(text)["SpotPriceHistory"])
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error}") from None
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
