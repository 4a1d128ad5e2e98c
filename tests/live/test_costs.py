"""What a job's account says of three interruptions, against the bill and the losses of the simulation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import apart
from tests.live.costs import PRICES, accounted

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return apart(accounted)


def test_the_hours_are_those_of_the_bill_but_for_the_end_of_each_instance(seen: dict[str, Any]) -> None:
    hours = seen["account"]["total"]["seconds"] / 3600
    instances = len(seen["steps_lost"]) + 1
    assert 0 <= seen["spot_hours"] - hours <= instances / 60
    assert seen["on_demand_hours"] == 0
    assert [*seen["account"]["markets"]] == ["spot"]


def test_the_cost_is_at_the_spot_price_of_each_zone(seen: dict[str, Any]) -> None:
    pools = seen["account"]["pools"]
    expected = [pool["seconds"] / 3600 * price for pool, price in zip(pools, PRICES, strict=True)]
    assert [pool["cost_usd"] for pool in pools] == pytest.approx(expected, abs=1e-3)
    assert seen["account"]["total"]["assumed_seconds"] == 0
    assert seen["account"]["saved_usd"] > 0


def test_the_steps_done_again_are_those_that_the_simulation_lost(seen: dict[str, Any]) -> None:
    assert seen["account"]["repeated_steps"] == sum(seen["steps_lost"]) > 0
    assert seen["account"]["interruptions"] == len(seen["steps_lost"])
    assert seen["account"]["unreported_attempts"] == 0


def test_a_running_job_has_an_account_so_far(seen: dict[str, Any]) -> None:
    so_far, whole = seen["so_far"], seen["account"]
    assert not so_far["is_over"]
    assert whole["is_over"]
    assert 0 < so_far["total"]["seconds"] < whole["total"]["seconds"]
    assert so_far["elapsed_seconds"] < whole["elapsed_seconds"]


def test_the_agent_leaves_a_page_among_the_artifacts(seen: dict[str, Any]) -> None:
    page, total = seen["page"], seen["account"]["total"]
    assert page.startswith("# What resnet cost\n")
    assert ", done, " in page
    assert f"| total |  |  | {total['seconds'] / 3600:.2f} | ${total['cost_usd']:.2f} |" in page
    assert "3 interruptions; 19 steps repeated" in page
