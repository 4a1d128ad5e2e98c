from __future__ import annotations

import pytest

from infra.catalogue import accelerators
from infra.catalogue.on_demand_prices import _PRICES, replacement_prices

TYPES = ("g5.2xlarge", "g5.xlarge", "g6f.large")


@pytest.mark.parametrize(("in_order", "dollars"), [(True, 1.212), (False, 1.006)])
def test_the_fallback_buys_its_first_choice_or_the_cheapest(in_order: bool, dollars: float) -> None:
    assert replacement_prices(TYPES, "us-west-2", {}, in_order=in_order) == dict.fromkeys(TYPES, dollars)


def test_an_instance_stands_for_as_many_as_it_weighs() -> None:
    weights = {"g5.12xlarge": 4, "g5.xlarge": 1}
    found = replacement_prices(list(weights), "us-east-1", weights, in_order=True)
    assert found == {"g5.12xlarge": 5.672, "g5.xlarge": 1.418}


@pytest.mark.parametrize(
    ("types", "region"), [(("g6f.large", "g5.xlarge"), "us-west-2"), (TYPES, "eu-west-1")]
)
def test_an_unknown_price_is_none(types: tuple[str, ...], region: str) -> None:
    assert replacement_prices(types, region, {}, in_order=True) == {}


def test_prices_are_of_the_catalogues_types_and_the_least_rises_with_the_gpus() -> None:
    least: dict[tuple[str, int], float] = {}
    for name, price in _PRICES.items():
        known = accelerators.CATALOGUE[name]
        size = (known.family.name, known.accelerators)
        least[size] = min(price, least.get(size, price))
    in_order = [(family, price) for (family, _), price in sorted(least.items())]
    assert in_order == sorted(in_order)
