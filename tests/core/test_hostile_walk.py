"""The hourly budget and the return to Spot, in small; ``make bench-walk`` takes 200,000 passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lambdas.core.capacity import availability
from lambdas.core.capacity.policies import expected_cost
from lambdas.core.money import hourly
from tests.core import hostile_walk

PASSES = 4_000


def test_no_lie_exceeds_the_budget_and_no_memory_keeps_a_group_from_spot() -> None:
    outcome = hostile_walk.run(PASSES)
    assert outcome.steps == PASSES
    assert outcome.ceiling_violations == []
    assert outcome.absorbed == []


def test_the_walk_detects_a_decision_without_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hourly, "limit_group", lambda group, now: group)
    monkeypatch.setattr(hourly, "limit_actions", lambda actions, *_: list(actions))
    assert hostile_walk.run(2_000).ceiling_violations


def test_the_last_step_holds_the_budget_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the plan knows nothing of it."""
    monkeypatch.setattr(hourly, "limit_group", lambda group, now: group)
    monkeypatch.setattr(hourly, "on_demand_room", lambda *_: None)
    assert hostile_walk.run(PASSES).ceiling_violations == []


@pytest.mark.soak
def test_the_walk_detects_a_last_step_without_ending_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are billed until they are gone."""
    monkeypatch.setattr(hourly, "limit_group", lambda group, now: group)
    monkeypatch.setattr(hourly, "on_demand_room", lambda *_: None)
    counted = hourly._Billed.now

    def without_ending(*seen: object) -> hourly._Billed:
        return replace(counted(*seen), ending=0, ending_on_demand=0)

    monkeypatch.setattr(hourly._Billed, "now", without_ending)
    assert hostile_walk.run(PASSES).ceiling_violations


@pytest.mark.soak
def test_the_walk_detects_a_policy_that_never_tries_spot_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_cost, "current_try", lambda _, now: (False, now + 3600))
    assert hostile_walk.run(20_000).absorbed


@pytest.mark.soak
def test_the_walk_detects_a_plan_without_spot(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = availability._primary_target
    monkeypatch.setattr(availability, "_primary_target", lambda *seen: min(0, planned(*seen)))
    assert hostile_walk.run(2_000).absorbed
