from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infra.catalogue import accelerators, price_tables
from infra.catalogue.on_demand_prices import price, replacement_prices
from infra.program.entries.training import agent_config

TYPES = ("g5.2xlarge", "g5.xlarge", "p5e.48xlarge")


@pytest.mark.parametrize(("in_order", "dollars"), [(True, 1.212), (False, 1.006)])
def test_the_fallback_buys_its_first_choice_or_the_cheapest(in_order: bool, dollars: float) -> None:
    assert replacement_prices(TYPES, "us-west-2", {}, in_order=in_order) == dict.fromkeys(TYPES, dollars)


def test_an_instance_stands_for_as_many_as_it_weighs() -> None:
    weights = {"g5.12xlarge": 4, "g5.xlarge": 1}
    found = replacement_prices(list(weights), "us-east-1", weights, in_order=True)
    assert found == {"g5.12xlarge": 5.672, "g5.xlarge": 1.418}


@pytest.mark.parametrize(
    ("types", "region"), [(("p5e.48xlarge", "g5.xlarge"), "us-west-2"), (TYPES, "ap-east-2")]
)
def test_an_unknown_price_is_none(types: tuple[str, ...], region: str) -> None:
    assert replacement_prices(types, region, {}, in_order=True) == {}


@pytest.mark.parametrize("table", price_tables.at_hand(), ids=lambda table: f"{table.region}-{table.date}")
def test_the_least_price_of_a_family_rises_with_the_gpus(table: price_tables.PriceTable) -> None:
    least: dict[tuple[str, int], float] = {}
    for name in table.usd.keys() & accelerators.CATALOGUE.keys():
        known = accelerators.CATALOGUE[name]
        size = (known.family.name, known.accelerators)
        usd = price(name, table.region)
        assert usd is not None
        least[size] = min(usd, least.get(size, usd))
    in_order = [(family, usd) for (family, _), usd in sorted(least.items())]
    assert in_order == sorted(in_order)


@pytest.mark.parametrize(("region", "is_assumed"), [("us-east-2", False), ("us-west-2", True)])
def test_writing_to_efs_where_its_price_is_unknown_costs_the_highest_price(
    region: str, is_assumed: bool
) -> None:
    capacity = SimpleNamespace(types=())
    job: Any = SimpleNamespace(capacity=capacity, fallback_capacity=capacity)
    prices = agent_config._prices(job, region)
    assert prices.efs_write == price_tables.highest(price_tables.EFS_WRITE)
    assert prices.efs_write_is_assumed == is_assumed
