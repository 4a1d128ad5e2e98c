"""The highest cost of a group and the return to Spot, in small; ``make bench-walk`` takes 200,000 passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lambdas.core.capacity import alarms, availability
from lambdas.core.capacity.availability import Decision
from lambdas.core.capacity.policies import expected_cost
from lambdas.core.model import GroupRole, Observation
from tests.core import hostile_walk

PASSES = 2_000


def test_no_lie_exceeds_the_maximum_and_no_memory_keeps_a_group_from_spot() -> None:
    outcome = hostile_walk.run(PASSES)
    assert outcome.steps == PASSES
    assert (outcome.violations, outcome.absorbed, outcome.alarms) == ([], [], [])
    assert outcome.moving == PASSES / 2
    assert outcome.opened == outcome.closed + outcome.still_open > 25


def test_the_walk_detects_a_decision_without_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = hostile_walk.decide

    def without_maximum(observation: Observation, *rest: Any) -> Decision:
        group = replace(observation.group, maximum=100)
        return decide(replace(observation, group=group), *rest)

    monkeypatch.setattr(hostile_walk, "decide", without_maximum)
    assert hostile_walk.run(500).violations


def test_the_walk_detects_an_alarm_that_flaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "RESOLVED_SECONDS", 60.0)
    assert hostile_walk.run(500).alarms


def test_the_walk_detects_a_capacity_outside_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "_bounds", lambda _: dict.fromkeys(GroupRole, (0, 100)))
    assert any("AWS refuses" in line for line in hostile_walk.run(500).violations)


@pytest.mark.soak
def test_the_walk_detects_a_policy_that_never_tries_spot_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_cost, "current_try", lambda _, now: (False, now + 3600))
    assert hostile_walk.run(20_000).absorbed


@pytest.mark.soak
def test_the_walk_detects_a_plan_without_spot(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = availability._primary_target
    monkeypatch.setattr(availability, "_primary_target", lambda *seen: min(0, planned(*seen)))
    assert hostile_walk.run(2_000).absorbed
