"""What an hourly budget of a group or of the stack may be, and what the controller gets of it."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.group.hourly_budget import HourlyBudget
from infra.catalogue import accelerators, price_tables
from infra.catalogue.on_demand_prices import (
    ASSUMED_ACCELERATOR_PRICE,
    ASSUMED_CPU_PRICE,
    ASSUMED_REGION_FACTOR,
    highest_slot_price,
)
from infra.settings import SettingsError
from tests.infra.test_refusals import ONE, capacity, settings, training

GROUP = "services[0].capacity.budget"
G6E = {"instanceTypes": ["g5.xlarge", "g6e.xlarge"], "target": 4, "max": 8}
"""Four instances and one for the exchange cost $9.305 at the price of the second type."""


def budget(**dollars: float) -> dict[str, Any]:
    return {"budget": dollars}


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        (budget(), f"{GROUP}.onDemandDollarsAnHour", "allowed: at least one of the two"),
        (budget(dollarsAnHour=0), f"{GROUP}.dollarsAnHour", "at least 0.01"),
        (budget(dollarsAnHour=1_000_001), f"{GROUP}.dollarsAnHour", "at most 1000000"),
        (budget(onDemandDollarsAnHour=0), f"{GROUP}.onDemandDollarsAnHour", "at least 0.01"),
        (budget(dollarsAnHour=9.3), GROUP, "9.3, allowed: at least 9.31 (5 instances at 1.861 dollars)"),
        (budget(onDemandDollarsAnHour=1.8), GROUP, "1.8, allowed: at least 1.87 (1 instances at 1.861"),
        (
            {"onDemandBase": 2, **budget(onDemandDollarsAnHour=3)},
            GROUP,
            "3, allowed: at least 3.73 (2 instances at 1.861 dollars)",
        ),
        (
            budget(dollarsAnHour=20, onDemandDollarsAnHour=30),
            f"{GROUP}.onDemandDollarsAnHour",
            "30 is above dollarsAnHour, allowed: at most 20",
        ),
        (
            {"instanceTypes": ["p5e.48xlarge"], **budget(dollarsAnHour=700)},
            GROUP,
            "allowed: at least 1000 (5 instances at 200 dollars, an assumed price)",
        ),
    ],
)
def test_a_budget_that_cannot_hold_the_group_is_refused(changes: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings("dev", capacity(**{**G6E, **changes}))
    assert str(caught.value).startswith(f"gpu-spot:{key}: ")
    assert said in str(caught.value)


def test_the_lowest_budget_is_accepted() -> None:
    group = settings("dev", capacity(**G6E, **budget(dollarsAnHour=9.31))).services[0].capacity
    assert group.hourly_budget("us-west-2") == HourlyBudget(slot_price=1.861, dollars=9.31)
    without = settings("dev", capacity(**G6E)).services[0].capacity
    assert without.hourly_budget("us-west-2") is None
    alone = capacity(**G6E, **budget(dollarsAnHour=7.45), fallback={"enabled": False})
    assert settings("dev", alone).services[0].capacity.budget is not None


def test_gpus_count_at_the_price_of_the_most_expensive_one() -> None:
    types = {"instanceTypes": ["g5.xlarge", "g5.12xlarge"], "unit": "gpus", "target": 4, "max": 8}
    group = settings("dev", capacity(**types, **budget(dollarsAnHour=20))).services[0].capacity
    hourly = group.hourly_budget("us-west-2")
    assert hourly is not None
    assert (hourly.slot_price, hourly.largest, hourly.slots) == (5.672 / 4, 4, 14)


def test_a_maximum_spot_price_above_on_demand_counts() -> None:
    changes = {**G6E, **budget(dollarsAnHour=50), "maxPrice": 3}
    hourly = settings("dev", capacity(**changes)).services[0].capacity.hourly_budget("us-west-2")
    assert hourly is not None
    assert hourly.slot_price == 3


def test_an_unknown_price_is_assumed_and_said() -> None:
    types = {**G6E, "instanceTypes": ["g5.xlarge", "p5e.48xlarge"]}
    known = settings("dev", capacity(**types, **budget(dollarsAnHour=5000)))
    [line] = [line for line in known.warnings() if "hourly budget" in line]
    assert line == (
        "inference: the hourly budget assumes 200 dollars per slot, because the price of p5e.48xlarge in "
        "us-west-2 is not known"
    )
    highest = price_tables.highest("g5.xlarge")
    assert highest is not None
    assert highest_slot_price(("g5.xlarge",), "ap-east-2", {"g5.xlarge": 1}) == (
        ASSUMED_REGION_FACTOR * highest,
        ("g5.xlarge",),
    )


def test_assumed_prices_are_above_known_ones() -> None:
    for name, kind in accelerators.CATALOGUE.items():
        if (highest := price_tables.highest(name)) is not None:
            assert highest < ASSUMED_ACCELERATOR_PRICE * kind.accelerators, name
    cpus = ("m9z.large",)
    assert highest_slot_price(cpus, "us-east-1", {"m9z.large": 1}) == (ASSUMED_CPU_PRICE, cpus)


@pytest.mark.parametrize(
    ("stack_budget", "group_budget", "said"),
    [
        (
            {"dollarsAnHour": 14.8},
            {},
            "is 14.8, but the groups may cost 14.89 (inference 14.89)",
        ),
        ({"dollarsAnHour": 14.89}, {}, ""),
        ({"dollarsAnHour": 10}, budget(dollarsAnHour=10), ""),
        ({"dollarsAnHour": 9}, budget(dollarsAnHour=10), "the groups may cost 9.31 (inference 9.31)"),
        ({"onDemandDollarsAnHour": 5}, budget(dollarsAnHour=10), "onDemandDollarsAnHour is 5, but the"),
        ({"onDemandDollarsAnHour": 5}, budget(onDemandDollarsAnHour=5), ""),
        ({"onDemandDollarsAnHour": 5}, {"fallback": {"enabled": False}}, ""),
    ],
)
def test_the_groups_must_fit_into_the_stacks_budget(
    stack_budget: dict[str, float], group_budget: dict[str, Any], said: str
) -> None:
    changes = {**capacity(**G6E, **group_budget), "gpu-spot:budget": stack_budget}
    if not said:
        assert settings("dev", changes).budget is not None
        return
    with pytest.raises(SettingsError) as caught:
        settings("dev", changes)
    assert str(caught.value).startswith("gpu-spot:budget: ")
    assert said in str(caught.value)


def test_a_capacity_block_and_a_budget_exclude_each_other() -> None:
    block = {"reservation": "cr-0123456789abcdef0", "instanceType": "g6e.48xlarge", "zone": "us-west-2b"}
    with pytest.raises(SettingsError, match=r"capacityBlock: .* with capacity.budget, allowed: one of them"):
        settings("dev", training(capacity={**ONE, **budget(dollarsAnHour=100)}, capacityBlock=block))


def test_a_fleet_that_asks_once_has_no_budget() -> None:
    asked = {"kind": "spot-fleet", "fleetType": "request", "fallback": {"enabled": False}}
    asked |= budget(dollarsAnHour=100)
    with pytest.raises(SettingsError, match=r"capacity\.budget: with fleetType 'request'"):
        settings("dev", capacity(**{**G6E, **asked}))
