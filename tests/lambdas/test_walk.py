"""The random walk in small; the long one is ``make bench-walk``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.registry import item as registry_item
from lambdas.aws import passes
from lambdas.aws.capacity import controller, observe
from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.core.capacity import group_state as situation
from lambdas.core.capacity import replacements
from tests.lambdas import walk
from tests.measured.walk import main


def test_nothing_breaks_on_a_hostile_aws(tmp_path: Path) -> None:
    out = tmp_path / "walk.json"
    assert main(["--out", str(out), "--steps", "1500", "--seed", "1000"]) == 0
    found = json.loads(out.read_text())
    assert found["violations"] == []
    assert found["passes"] > 300


def test_invariants_hold_for_a_job_with_a_deadline_and_any_progress() -> None:
    passes, violations = walk.run(1_000, seed=2000, deadline=True)
    assert violations == []
    assert passes > 150


def test_the_walk_detects_members_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A former version did not count members that EC2 does not describe."""
    counted = observe._instance

    def described_only(*seen: object) -> object:
        instance = counted(*seen)
        return instance if instance is not None and instance.is_described else None

    monkeypatch.setattr(observe, "_instance", described_only)
    monkeypatch.setattr(
        situation.Observation, "counted_slots", lambda self, role: len(self.instances_of(role))
    )
    _, violations = walk.run(500)
    assert any("AWS picks" in line for line in violations)


@pytest.mark.soak
def test_the_walk_detects_failed_terminations_in_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On-Demand would be lowered in addition to the failed termination."""
    monkeypatch.setattr(controller.Controller, "_remove_failed_requests", lambda *_: [])
    from_observation = situation.GroupState.from_observation

    def as_if_terminated(*seen: object) -> situation.GroupState:
        state = from_observation(*seen)
        return situation.replace(
            state,
            unterminated_slots=dict.fromkeys(state.unterminated_slots, 0),
            pending_reduction=dict.fromkeys(state.pending_reduction, 0),
        )

    monkeypatch.setattr(situation.GroupState, "from_observation", as_if_terminated)
    _, violations = walk.run(1_000, seed=0)
    assert any("AWS picks" in line for line in violations)


@pytest.mark.soak
def test_the_walk_detects_a_slow_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk.entry, "_retry_soon", lambda *_: None)
    monkeypatch.setattr(passes, "MAX_ATTEMPTS", 1)
    _, violations = walk.run(4_000)
    assert any("is unhandled" in line for line in violations)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("owner", "name", "value", "steps", "seed", "says"),
    [
        (AutoScalingService, "_should_scale_in", lambda *_: True, 1_000, 0, "AWS picks"),
        (situation.GroupState, "expendable", lambda _, known: list(known), 1_000, 2, "had no successor"),
        (replacements, "REPLACEMENT_DIVISOR", 1, 500, 0, "replaced in one window"),
        (registry_item, "instance_of", lambda _: "", 500, 25, "was the last ready worker"),
    ],
)
def test_the_walk_detects(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: Any, steps: int, seed: int, says: str
) -> None:
    monkeypatch.setattr(owner, name, value)
    _, violations = walk.run(steps, seed=seed)
    assert any(says in line for line in violations)
