"""The program rehearsed: what moto plays is held, each can be falsified, nothing is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from gpu_spot import cli
from gpu_spot.aws_check import cleaning
from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.assumptions import ASSUMPTIONS
from gpu_spot.aws_check.lab import Falsified, Lab
from gpu_spot.aws_check.trial import tried
from gpu_spot.commands import aws_check, project
from gpu_spot.preflight import account
from rehearsal.aws_check import rehearsed
from tests.aws_check.faults import FAULTS, faulty
from tests.docs.keys import documented

PLAYABLE = [assumption for assumption in ASSUMPTIONS if not assumption.unplayable]
BY_NAME = {assumption.name: assumption for assumption in ASSUMPTIONS}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Lab]:
    """One local cloud for all: every trial is a run of its own in it."""
    with rehearsed("us-east-1") as lab:
        yield lab


def verdict(lab: Lab, assumption: Assumption) -> tuple[str, str]:
    outcomes, left = tried(lab, [assumption], on_moto=False, heard=lambda outcome: None)
    assert left == []
    return outcomes[0].verdict, outcomes[0].seen


@pytest.mark.parametrize("assumption", PLAYABLE, ids=lambda assumption: assumption.name)
def test_what_moto_plays_is_held(cloud: Lab, assumption: Assumption) -> None:
    held, seen = verdict(replace(cloud, run=f"held-{assumption.name}"), assumption)
    assert held == "held", seen


@pytest.mark.parametrize("name", FAULTS)
def test_every_assumption_can_be_falsified(cloud: Lab, name: str) -> None:
    # What is set up and cleaned goes past the fault: it is in the assumption's own steps.
    lab = replace(cloud, run=f"fault-{name}"[:30], clients=faulty(cloud.clients, FAULTS[name]))
    assumption = BY_NAME[name]
    outcomes: list[tuple[str, str]] = []
    try:
        tried_steps = assumption.steps(lab)
        outcomes.append(("held", tried_steps))
    except Exception as error:
        outcomes.append((type(error).__name__, str(error)))
    finally:
        assert cleaning.clean_up(cloud.clients, cloud.clock, lab.run) == []
    assert [kind for kind, _ in outcomes] == ["Falsified"], outcomes


def test_a_refusal_for_permissions_falsifies_nothing(cloud: Lab) -> None:
    def denied(call: object, given: object) -> dict[str, object]:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "SetDesiredCapacity")

    front = faulty(cloud.clients, ("autoscaling", "set_desired_capacity", denied))
    lab = replace(cloud, run="denied", clients=front)
    assert verdict(lab, BY_NAME["desired-above-max"])[0] == "not tried"
    assert verdict(replace(lab, run="denied2"), BY_NAME["release"])[0] == "not tried"


def test_what_moto_cannot_play_is_passed_over_and_never_held(cloud: Lab) -> None:
    unplayable = [assumption for assumption in ASSUMPTIONS if assumption.unplayable]
    outcomes, _ = tried(replace(cloud, run="none"), unplayable, on_moto=True, heard=lambda outcome: None)
    assert {outcome.verdict for outcome in outcomes} == {"not playable here"}
    assert all(outcome.seen for outcome in outcomes)


def test_a_run_that_is_broken_off_leaves_nothing(cloud: Lab) -> None:
    lab = replace(cloud, run="broken")

    def broken_off(lab: Lab) -> str:
        lab.serving(lab.group("one"), 1)
        lab.queue("one")
        raise KeyboardInterrupt

    assumption = replace(BY_NAME["release"], steps=broken_off)
    with pytest.raises(KeyboardInterrupt):
        tried(lab, [assumption], on_moto=False, heard=lambda outcome: None)
    assert list(cleaning.leftovers(cloud.clients, "broken")) == []


def test_cleaning_takes_one_run_or_all(cloud: Lab) -> None:
    for run in ("one", "other"):
        lab = replace(cloud, run=run)
        lab.queue("queue")
        lab.template("template")
    assert cleaning.clean_up(cloud.clients, cloud.clock, "one") == []
    assert len(list(cleaning.leftovers(cloud.clients, "other"))) == 2
    assert cleaning.clean_up(cloud.clients, cloud.clock) == []
    assert list(cleaning.leftovers(cloud.clients, None)) == []


def test_what_cannot_be_deleted_is_told_in_the_end(cloud: Lab) -> None:
    lab = replace(cloud, run="stuck")
    template = lab.template("template")

    def stuck(call: object, given: object) -> dict[str, object]:
        raise ClientError({"Error": {"Code": "DependencyViolation", "Message": ""}}, "DeleteLaunchTemplate")

    front = faulty(cloud.clients, ("ec2", "delete_launch_template", stuck))
    started = cloud.clock.now()
    assert cleaning.clean_up(front, cloud.clock, "stuck") == [f"template {template}"]
    assert 900 <= cloud.clock.now() - started <= 920
    assert cleaning.clean_up(cloud.clients, cloud.clock, "stuck") == []


@pytest.fixture
def on_aws(cloud: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The command with this cloud for AWS, and a folder for its page."""
    who = account.Account("123456789012", "arn:aws:iam::123456789012:user/me", cloud.clients)
    monkeypatch.setattr(account, "connect", lambda region, profile: who)
    monkeypatch.setattr(aws_check, "WallClock", lambda: cloud.clock)
    monkeypatch.setattr(project, "find", lambda: tmp_path)
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs" / "aws-check.md"


def test_a_run_on_aws_writes_its_page(
    on_aws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = (BY_NAME["template-versions"], BY_NAME["longest-delay"])
    monkeypatch.setattr(aws_check, "ASSUMPTIONS", chosen)
    assert cli.main(["aws-check", "--yes-spend-money"]) == 0
    assert "held: 2, falsified: 0" in capsys.readouterr().out
    page = on_aws.read_text("utf-8")
    assert "Run on AWS in us-east-1 on 2026-" in page
    assert "**held**: latest 2, default 1" in page


def test_a_part_of_the_assumptions_writes_no_page(on_aws: Path) -> None:
    assert cli.main(["aws-check", "--yes-spend-money", "--only", "template-versions"]) == 0
    assert not on_aws.exists()


def test_a_run_is_one_document_where_that_is_asked_for(
    on_aws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aws_check, "ASSUMPTIONS", (BY_NAME["template-versions"],))
    assert cli.main(["aws-check", "--yes-spend-money", "--json"]) == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert told.keys() == documented("aws-check")
    [outcome] = told["outcomes"]
    assert (outcome["name"], outcome["verdict"]) == ("template-versions", "held")
    assert (told["is_well"], told["counts"]["held"], told["left"]) == (True, 1, [])
    assert (told["account"], told["page"]) == ("123456789012", "docs/aws-check.md")
    assert "latest 2, default 1" in shown.err


def test_what_is_falsified_or_left_is_not_well(
    on_aws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def falsified(lab: Lab) -> str:
        raise Falsified("another")

    wrong = replace(BY_NAME["template-versions"], steps=falsified)
    monkeypatch.setattr(aws_check, "ASSUMPTIONS", (wrong,))
    assert cli.main(["aws-check", "--yes-spend-money", "--json"]) == 1
    assert not json.loads(capsys.readouterr().out)["is_well"]
    monkeypatch.setattr(aws_check, "clean_up", lambda clients, clock: ["template lt-1"])
    assert cli.main(["aws-check", "--clean-up-only", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["left"], told["outcomes"]) == (["template lt-1"], [])


def test_what_costs_more_than_the_cap_does_not_start(
    on_aws: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["aws-check", "--yes-spend-money", "--cap", "0.10"]) == 2
    assert "this run may cost $" in capsys.readouterr().err
    assert not on_aws.exists()


def test_cleaning_alone_takes_what_is_left(cloud: Lab, on_aws: Path) -> None:
    replace(cloud, run="crashed").queue("queue")
    assert cli.main(["aws-check", "--clean-up-only"]) == 0
    assert list(cleaning.leftovers(cloud.clients, None)) == []
