"""Interruption rates and savings of the Spot Instance Advisor, from its data file.

Source: the data behind https://aws.amazon.com/ec2/spot/instance-advisor/ (``spot-advisor-data.json``).
By that page the frequency of interruption is the rate at which Spot reclaimed capacity in the last month, and
savings are those of the last 30 days, averaged over the Availability Zones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_spot.forecast.prices import Prices
from lambdas.core.model import Pool

_SYSTEM: Final = "Linux"


@dataclass(frozen=True, slots=True)
class Rate:
    """A type's frequency of interruption, and its savings.

    ``rank`` 0 is the lowest range, and ``label`` the range, such as ``<5%``. ``savings`` is
    1 - Spot price ÷ On-Demand price.
    """

    rank: int
    label: str
    savings: float


Rates = Mapping[str, Mapping[str, Rate]]
"""Rates by region and instance type."""


def read(text: str) -> Rates:
    """Return the rates in the advisor's data file. Raises ``ValueError`` for anything else."""
    try:
        document = json.loads(text)
        labels = {entry["index"]: str(entry["label"]) for entry in document["ranges"]}
        return {
            region: {
                kind: Rate(int(entry["r"]), labels[entry["r"]], int(entry["s"]) / 100)
                for kind, entry in systems.get(_SYSTEM, {}).items()
            }
            for region, systems in document["spot_advisor"].items()
        }
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"not the data of the Spot Instance Advisor: {type(error).__name__}: {error}"
        ) from None


def worst(rates: Mapping[str, Rate], types: Iterable[str]) -> Rate | None:
    """Return the highest rate among types; None if the rate of one is unknown."""
    known_rates = [rates.get(kind) for kind in types]
    if not known_rates or None in known_rates:
        return None
    return max((rate for rate in known_rates if rate is not None), key=lambda rate: rate.rank)


def with_savings(prices: Prices, zones: Iterable[str], rates: Mapping[str, Rate]) -> Prices:
    """Return prices in which pools without a Spot price have that of the advisor's savings."""
    spot = {
        Pool(kind, zone): (1 - rate.savings) * on_demand
        for kind, rate in rates.items()
        if (on_demand := prices.on_demand_price(kind)) is not None
        for zone in zones
    }
    return replace(prices, spot=spot | dict(prices.spot))
