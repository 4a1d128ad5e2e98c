"""The random walk in small; the long one is ``make bench-walk``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.functions.walk import main
from contracts.registry import item as registry_item
from lambdas.aws.capacity import controller, observe
from lambdas.aws.capacity.auto_scaling import AutoScalingService
from lambdas.core.capacity import group_state as situation
from lambdas.core.capacity import replacements
from tests.lambdas import walk


def test_nothing_breaks_on_a_hostile_aws(tmp_path: Path) -> None:
    out = tmp_path / "walk.json"
    assert main(["--out", str(out), "--steps", "4000", "--seed", "1000"]) == 0
    found = json.loads(out.read_text())
    assert found["violations"] == []
    assert found["passes"] > 900


def test_nothing_breaks_for_a_job_with_a_deadline_whatever_it_tells() -> None:
    passes, violations = walk.run(2_000, seed=2000, deadline=True)
    assert violations == []
    assert passes > 300


def test_the_walk_would_notice_members_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the controller counted before: whom EC2 does not describe is not there."""
    counted = observe._instance

    def described_only(*seen: object) -> object:
        instance = counted(*seen)
        return instance if instance is not None and instance.described else None

    monkeypatch.setattr(observe, "_instance", described_only)
    monkeypatch.setattr(situation.Observation, "counted", lambda self, side: len(self.on(side)))
    _, violations = walk.run(4_000)
    assert any("AWS picks" in line for line in violations)


def test_the_walk_would_notice_releases_that_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And that a failed release is worse than none: on-demand is lowered on top of it."""
    monkeypatch.setattr(controller.Controller, "_unmark", lambda *_: [])
    showing = situation.Situation.of

    def as_if_gone(*seen: object) -> situation.Situation:
        found = showing(*seen)
        return situation.replace(
            found, showing=dict.fromkeys(found.showing, 0), owed=dict.fromkeys(found.owed, 0)
        )

    monkeypatch.setattr(situation.Situation, "of", as_if_gone)
    _, violations = walk.run(6_000)
    assert any("AWS picks" in line for line in violations)


def test_the_walk_would_notice_a_scale_in_that_may_take_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutoScalingService, "_takes_back", lambda *_: True)
    _, violations = walk.run(1_000, seed=27)
    assert any("AWS picks" in line for line in violations)


def test_the_walk_would_notice_a_wish_that_is_followed_before_others_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(situation.Situation, "served", lambda self, going: list(going))
    _, violations = walk.run(1_500)
    assert any("nobody is in its place" in line for line in violations)


def test_the_walk_would_notice_wishes_that_are_followed_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacements, "SHARE", 1)
    _, violations = walk.run(500)
    assert any("ended for wishes" in line for line in violations)


def test_the_walk_would_notice_a_slow_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk.entry, "_again", lambda *_: None)
    monkeypatch.setattr(controller, "MOST_LOOKS", 1)
    _, violations = walk.run(4_000)
    assert any("is not known" in line for line in violations)


def test_the_walk_would_notice_who_is_let_go_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a row that makes no sense says nothing of its instance, the only one that serves may go."""
    monkeypatch.setattr(registry_item, "owner", lambda _: "")
    _, violations = walk.run(500, seed=1025)
    assert any("was the last ready worker" in line for line in violations)
