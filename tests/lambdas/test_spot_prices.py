"""What spot costs now: read rarely, remembered in between, seen by the policies."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.core.capacity.group_state import UNKNOWN_SPOT_PRICE
from lambdas.core.capacity.memory import PRICE_SECONDS
from tests.lambdas.fake_aws import FakeAws
from tests.lambdas.scene import NOW, ROOT, config, controller, only

READ = "describe_spot_price_history"
PRICED: dict[str, Any] = {
    "zones": ["us-west-2a", "us-west-2b"],
    "onDemandPrices": {"g5.xlarge": 1.0, "g5.2xlarge": 2.0},
}


@pytest.fixture
def priced(aws: FakeAws) -> FakeAws:
    aws.parameters[f"{ROOT}/inference/config"] = config(**PRICED)
    aws.spot_prices = {
        ("g5.xlarge", "us-west-2a"): "0.500000",
        ("g5.xlarge", "us-west-2c"): "0.100000",
        ("g5.2xlarge", "us-west-2b"): "0.800000",
    }
    return aws


def seen(aws: FakeAws, now: float = NOW) -> float:
    decision = only(controller(aws, now).run()).decision
    assert decision is not None
    return decision.situation.spot_price


def test_the_price_is_the_least_against_the_on_demand_in_its_place(priced: FakeAws) -> None:
    assert seen(priced) == 0.4
    memory = controller(priced).store.load("inference").memory
    assert memory.spot_prices == {"g5.xlarge@us-west-2a": 0.5, "g5.2xlarge@us-west-2b": 0.4}


def test_it_is_read_once_as_long_as_it_is_believed(priced: FakeAws) -> None:
    for minute in range(10):
        seen(priced, NOW + 60 * minute)
    assert priced.calls[READ] == 1
    priced.spot_prices["g5.2xlarge", "us-west-2b"] = "2.000000"
    assert seen(priced, NOW + PRICE_SECONDS) == 0.5
    assert priced.calls[READ] == 2


def test_a_failure_keeps_the_last_price_is_told_and_tried_again(priced: FakeAws) -> None:
    seen(priced)
    priced.throttled[READ] = 1
    outcome = only(controller(priced, NOW + PRICE_SECONDS).run())
    assert outcome.decision is not None
    assert outcome.decision.situation.spot_price == 0.4
    assert outcome.troubles == (
        "spot prices could not be read: An error occurred (Throttling) when calling the "
        f"{READ} operation: Rate exceeded",
    )
    assert not outcome.is_worth_another_try
    assert only(controller(priced, NOW + PRICE_SECONDS + 60).run()).troubles == ()
    assert priced.calls[READ] == 3


def test_where_no_on_demand_price_is_known_nothing_is_asked(aws: FakeAws) -> None:
    assert seen(aws) == UNKNOWN_SPOT_PRICE
    assert aws.calls[READ] == 0


def test_prices_that_are_no_longer_known_are_forgotten(priced: FakeAws) -> None:
    seen(priced)
    priced.parameters[f"{ROOT}/inference/config"] = config()
    assert seen(priced, NOW + 60) == UNKNOWN_SPOT_PRICE


def test_what_the_group_costs_is_told_with_its_other_numbers(priced: FakeAws) -> None:
    priced.add_instance("primary", "i-dear", spot=False, launched=NOW - 600, heartbeat=NOW)
    cost = only(controller(priced).run()).cost
    assert cost is not None
    assert (cost.paid, cost.on_demand) == (3.0, 5.0)
