"""A job with a spent budget and the deployed controller: notified, saved, stopped, resumed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import apart
from tests.live.budgets import BUDGET, RESUMED_AT, STEPS, held

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return apart(held)


def test_it_is_held_while_its_budget_is_spent_and_costs_nothing_then(seen: dict[str, Any]) -> None:
    stopped = [phase for phase in seen["phases"] if phase[1] == "stopped"]
    assert stopped[0][0] < RESUMED_AT - 10
    assert "its budget of $0.25 is spent; resume it with `gpu-spot jobs resume --budget`" in stopped[-1][2]
    assert BUDGET <= stopped[0][3] < BUDGET + 0.03  # looks are a minute apart, then it saves
    assert stopped[-1][3] == pytest.approx(stopped[1][3])


def test_it_saves_and_resumes_at_the_same_step(seen: dict[str, Any]) -> None:
    *_, (_, _, saved), (resumed_at, kind, step), (_, _, last) = seen["journal"]
    assert kind == "running"
    assert 0 < saved == step < STEPS == last
    assert resumed_at > RESUMED_AT
    assert seen["phases"][-1][1] == "done"


def test_each_threshold_is_notified_once(seen: dict[str, Any]) -> None:
    orders = [order for decision in seen["decisions"] for order in decision["actions"]]
    said = [order for order in orders if order.startswith("alarm: ")]
    assert said == ["alarm: budget-short", "alarm: budget-low", "alarm: budget-spent"]


def test_it_resumes_only_with_a_budget_above_the_spent_amount(seen: dict[str, Any]) -> None:
    without, too_little, enough = seen["said"]
    assert without.startswith("the budget of job 'resnet', $0.25, is spent; set --budget above 0.2")
    assert too_little.startswith("job 'resnet': --budget is 0.125, allowed: above 0.2")
    assert enough == "resumed resnet: an instance is requested"
