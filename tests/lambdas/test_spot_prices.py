"""Spot prices: read rarely, cached in the memory, used by the policies."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.core.capacity.group_state import UNKNOWN_SPOT_PRICE
from lambdas.core.capacity.memory import PRICE_SECONDS
from tests.lambdas.fake_aws import FakeAws
from tests.lambdas.single_group import NOW, ROOT, config, controller, only

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
    return decision.state.spot_price


def test_the_price_is_the_minimum_relative_to_on_demand(priced: FakeAws) -> None:
    assert seen(priced) == 0.4
    memory = controller(priced).memory_store.load("inference").memory
    assert memory.spot_prices == {"g5.xlarge@us-west-2a": 0.5, "g5.2xlarge@us-west-2b": 0.4}


def test_prices_are_read_once_while_they_are_valid(priced: FakeAws) -> None:
    for minute in range(10):
        seen(priced, NOW + 60 * minute)
    assert priced.calls[READ] == 1
    priced.spot_prices["g5.2xlarge", "us-west-2b"] = "2.000000"
    assert seen(priced, NOW + PRICE_SECONDS) == 0.5
    assert priced.calls[READ] == 2


def test_after_an_error_the_last_price_stays_and_the_read_is_retried(priced: FakeAws) -> None:
    seen(priced)
    priced.throttled[READ] = 1
    outcome = only(controller(priced, NOW + PRICE_SECONDS).run())
    assert outcome.decision is not None
    assert outcome.decision.state.spot_price == 0.4
    assert outcome.read_errors == (
        "Spot prices not read: An error occurred (Throttling) when calling the "
        f"{READ} operation: Rate exceeded",
    )
    assert not outcome.is_retryable
    assert only(controller(priced, NOW + PRICE_SECONDS + 60).run()).read_errors == ()
    assert priced.calls[READ] == 3


def test_without_on_demand_prices_no_call_is_made(aws: FakeAws) -> None:
    assert seen(aws) == UNKNOWN_SPOT_PRICE
    assert aws.calls[READ] == 0


def test_prices_are_removed_with_the_on_demand_prices(priced: FakeAws) -> None:
    seen(priced)
    priced.parameters[f"{ROOT}/inference/config"] = config()
    assert seen(priced, NOW + 60) == UNKNOWN_SPOT_PRICE


def test_the_outcome_has_the_groups_cost(priced: FakeAws) -> None:
    priced.add_instance("primary", "i-dear", spot=False, launched=NOW - 600, heartbeat=NOW)
    cost = only(controller(priced).run()).cost
    assert cost is not None
    assert (cost.paid, cost.on_demand) == (3.0, 5.0)
