"""What a forecast reckons with, and how old it is: on-demand by type, spot by capacity pool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.catalogue import on_demand_prices
from infra.schema import Capacity
from lambdas.core.model import Pool

ASSUMED_SPOT: Final = 0.3
"""Spot ÷ on-demand where nobody has looked, as in every replay (``market/rules.py``)."""
PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
"""What spot's prices are of: instances without a licence."""


@dataclass(frozen=True, slots=True)
class Prices:
    """``on_demand`` (US dollars an hour, by type) replaces the shipped list where it was read; ``spot`` too.

    ``read`` says when and from where: a month of the shipped list, or the Price List's own date.
    """

    region: str
    on_demand: Mapping[str, float] | None = None
    spot: Mapping[Pool, float] = field(default_factory=dict)
    read: str = f"list prices of {on_demand_prices.READ}"

    def slot(self, capacity: Capacity) -> float | None:
        """Return what a slot costs on-demand an hour where the fallback buys; None where nobody knows."""
        in_order = capacity.instance_requirements is None
        found = on_demand_prices.in_place_of(
            capacity.types, self.region, capacity.weights, in_order=in_order, listed=self.on_demand
        )
        return min((price / capacity.weights[kind] for kind, price in found.items()), default=None)

    def own(self, kind: str) -> float | None:
        """Return what a type costs on-demand an hour."""
        if self.on_demand is not None:
            return self.on_demand.get(kind)
        return on_demand_prices.price(kind, self.region)

    def share(self, pool: Pool, capacity: Capacity) -> float | None:
        """Return what spot of a pool costs a slot, as a fraction of the on-demand in its place.

        None where nobody knows: what spot costs of a type that has no price.
        """
        slot, own = self.slot(capacity), self.own(pool.instance_type)
        spot = self.spot.get(pool, own and ASSUMED_SPOT * own)
        return None if slot is None or spot is None else spot / capacity.weights[pool.instance_type] / slot


def spot_history(text: str) -> dict[Pool, float]:
    """Return each pool's newest price in the answer of ``aws ec2 describe-spot-price-history``, as JSON.

    Raises ``ValueError`` for anything else.
    """
    try:
        return newest(json.loads(text)["SpotPriceHistory"])
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"no price history: {type(error).__name__}: {error}") from None


def newest(rows: Iterable[Any]) -> dict[Pool, float]:
    """Return each pool's newest price in rows of EC2's history; others' than Linux's do not count."""
    found: dict[Pool, tuple[str, float]] = {}
    for row in rows:
        if row["ProductDescription"] in PRODUCTS:
            pool = Pool(str(row["InstanceType"]), str(row["AvailabilityZone"]))
            told = (str(row["Timestamp"]), float(row["SpotPrice"]))
            found[pool] = max(told, found.get(pool, told))
    return {pool: price for pool, (_, price) in found.items()}
