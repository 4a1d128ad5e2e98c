"""The program on moto: supported assumptions hold, each can be falsified, and nothing is left over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from gpu_spot import cli
from gpu_spot.aws_check import calls, cleaning, results
from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.assumptions import ASSUMPTIONS
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified
from gpu_spot.aws_check.trial import run_assumptions
from gpu_spot.commands import aws_check, project
from gpu_spot.preflight import account
from rehearsal.aws_check import rehearsed
from tests.aws_check.doubles import Recording, faulty
from tests.aws_check.faults import FAULTS
from tests.aws_check.faults_of_services import NO_SERVER
from tests.docs.keys import documented
from tests.soak import sample

pytestmark = pytest.mark.filterwarnings("ignore:Budget.CostFilters:DeprecationWarning")
"""See ``tests/deprecated.py``."""

SUPPORTED = [assumption for assumption in ASSUMPTIONS if not assumption.unsupported_reason]
BY_NAME = {assumption.name: assumption for assumption in ASSUMPTIONS}
ORDER = {assumption.name: number for number, assumption in enumerate(ASSUMPTIONS)}
"""For runs with short names, as on AWS: a broker's name has at most 50 characters."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[AwsTestBed]:
    """One local cloud for all: every trial is a run of its own in it."""
    with rehearsed("us-east-1") as test_bed:
        yield test_bed


def verdict(test_bed: AwsTestBed, assumption: Assumption) -> tuple[str, str]:
    outcomes, left = run_assumptions(test_bed, [assumption], on_moto=False, on_outcome=lambda outcome: None)
    assert left == []
    return outcomes[0].verdict, outcomes[0].observation


@pytest.mark.parametrize("assumption", SUPPORTED, ids=lambda assumption: assumption.name)
def test_supported_assumptions_hold_on_moto_with_the_calls_of_a_dry_run(
    cloud: AwsTestBed, assumption: Assumption
) -> None:
    made: set[str] = set()
    run = f"held{ORDER[assumption.name]}"
    test_bed = replace(cloud, run=run, clients=lambda service: Recording(service, cloud, made))
    try:
        assert assumption.run(test_bed)
    finally:
        assert cleaning.clean_up(cloud.clients, cloud.clock, run) == []
    assert made
    assert made <= set(calls.operations(assumption))


@pytest.mark.parametrize("name", sample(FAULTS, 3))
def test_every_assumption_can_be_falsified(
    cloud: AwsTestBed, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name in NO_SERVER:
        monkeypatch.setattr(NO_SERVER[name], lambda *arguments, **options: (500, None))
    # What is set up and cleaned goes past the fault: it is in the assumption's own steps.
    test_bed = replace(cloud, run=f"fault{ORDER[name]}", clients=faulty(cloud.clients, FAULTS[name]))
    assumption = BY_NAME[name]
    outcomes: list[tuple[str, str]] = []
    try:
        tried_steps = assumption.run(test_bed)
        outcomes.append(("held", tried_steps))
    except Exception as error:
        outcomes.append((type(error).__name__, str(error)))
    finally:
        assert cleaning.clean_up(cloud.clients, cloud.clock, test_bed.run) == []
    assert [kind for kind, _ in outcomes] == ["Falsified"], outcomes


def test_a_refusal_for_permissions_falsifies_nothing(cloud: AwsTestBed) -> None:
    def denied(call: object, options: object) -> dict[str, object]:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "SetDesiredCapacity")

    front = faulty(cloud.clients, ("autoscaling", "set_desired_capacity", denied))
    test_bed = replace(cloud, run="denied", clients=front)
    assert verdict(test_bed, BY_NAME["desired-above-max"])[0] == "not tried"
    assert verdict(replace(test_bed, run="denied2"), BY_NAME["release"])[0] == "not tried"


def test_unsupported_assumptions_are_skipped(cloud: AwsTestBed) -> None:
    unsupported = [assumption for assumption in ASSUMPTIONS if assumption.unsupported_reason]
    outcomes, _ = run_assumptions(
        replace(cloud, run="none"), unsupported, on_moto=True, on_outcome=lambda outcome: None
    )
    assert {outcome.verdict for outcome in outcomes} == {"not playable here"}
    assert all(outcome.observation for outcome in outcomes)


def test_an_interrupted_run_leaves_nothing(cloud: AwsTestBed) -> None:
    test_bed = replace(cloud, run="broken")

    def broken_off(test_bed: AwsTestBed) -> str:
        test_bed.scale_to(test_bed.group("one"), 1)
        test_bed.queue("one")
        raise KeyboardInterrupt

    assumption = replace(BY_NAME["release"], run=broken_off)
    with pytest.raises(KeyboardInterrupt):
        run_assumptions(test_bed, [assumption], on_moto=False, on_outcome=lambda outcome: None)
    assert list(cleaning.leftovers(cloud.clients, "broken")) == []


def test_clean_up_of_one_run_or_all_runs(cloud: AwsTestBed) -> None:
    for run in ("one", "other"):
        test_bed = replace(cloud, run=run)
        test_bed.queue("queue")
        test_bed.template("template")
    assert cleaning.clean_up(cloud.clients, cloud.clock, "one") == []
    assert len(list(cleaning.leftovers(cloud.clients, "other"))) == 2
    assert cleaning.clean_up(cloud.clients, cloud.clock) == []
    assert list(cleaning.leftovers(cloud.clients, None)) == []


def test_leftovers_are_reported(cloud: AwsTestBed) -> None:
    test_bed = replace(cloud, run="stuck")
    template = test_bed.template("template")

    def stuck(call: object, options: object) -> dict[str, object]:
        raise ClientError({"Error": {"Code": "DependencyViolation", "Message": ""}}, "DeleteLaunchTemplate")

    front = faulty(cloud.clients, ("ec2", "delete_launch_template", stuck))
    started = cloud.clock.now()
    assert cleaning.clean_up(front, cloud.clock, "stuck") == [f"template {template}"]
    assert 900 <= cloud.clock.now() - started <= 920
    assert cleaning.clean_up(cloud.clients, cloud.clock, "stuck") == []


@pytest.fixture
def on_aws(cloud: AwsTestBed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The command with this cloud for AWS, and a folder for its page."""
    caller_account = account.Account("123456789012", "arn:aws:iam::123456789012:user/me", cloud.clients)
    monkeypatch.setattr(account, "connect", lambda region, profile: caller_account)
    monkeypatch.setattr(aws_check, "WallClock", lambda: cloud.clock)
    monkeypatch.setattr(project, "find", lambda: tmp_path)
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs" / "aws-check.md"


def test_a_run_on_aws_writes_its_results_and_the_page(
    on_aws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = (BY_NAME["template-versions"], BY_NAME["longest-delay"])
    monkeypatch.setattr(aws_check, "ASSUMPTIONS", chosen)
    assert cli.main(["aws-check", "--yes-spend-money"]) == 0
    shown = capsys.readouterr().out
    assert "held: 2, falsified: 0" in shown
    assert "t3.nano $0.0052" in shown.replace("\n", " ")
    assert "not counted: " in shown
    page = on_aws.read_text("utf-8")
    assert "Results: 2 held." in page
    assert "**held** in us-east-1, 2026-" in page
    assert "latest 2, default 1" in page
    assert cli.main(["aws-check", "--page"]) == 0
    assert capsys.readouterr().out == page


def test_a_part_of_the_assumptions_keeps_the_other_results(on_aws: Path) -> None:
    assert cli.main(["aws-check", "--yes-spend-money", "--only", "longest-delay"]) == 0
    assert cli.main(["aws-check", "--yes-spend-money", "--only", "template-versions"]) == 0
    stored = results.read(on_aws.with_suffix(".json"))
    assert {name: result.verdict for name, result in stored.items()} == {
        "longest-delay": "held",
        "template-versions": "held",
    }
    assert f"{len(ASSUMPTIONS) - 2} not run on AWS yet" in on_aws.read_text("utf-8")


def test_json_output_is_one_document(
    on_aws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(aws_check, "ASSUMPTIONS", (BY_NAME["template-versions"],))
    assert cli.main(["aws-check", "--yes-spend-money", "--json"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document.keys() == documented("aws-check")
    [outcome] = document["outcomes"]
    assert (outcome["name"], outcome["verdict"]) == ("template-versions", "held")
    assert (document["is_well"], document["counts"]["held"], document["left"]) == (True, 1, [])
    assert (document["account"], document["page"]) == ("123456789012", "docs/aws-check.md")
    assert "latest 2, default 1" in shown.err


def test_falsified_assumptions_and_leftovers_fail(
    on_aws: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def falsified(test_bed: AwsTestBed) -> str:
        raise Falsified("another")

    wrong = replace(BY_NAME["template-versions"], run=falsified)
    monkeypatch.setattr(aws_check, "ASSUMPTIONS", (wrong,))
    assert cli.main(["aws-check", "--yes-spend-money", "--json"]) == 1
    assert not json.loads(capsys.readouterr().out)["is_well"]
    monkeypatch.setattr(aws_check, "clean_up", lambda clients, clock: ["template lt-1"])
    assert cli.main(["aws-check", "--clean-up-only", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["left"], document["outcomes"]) == (["template lt-1"], [])


def test_a_run_above_its_dollars_does_not_start(on_aws: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["aws-check", "--yes-spend-money", "--only", "cluster-has-one-endpoint"]) == 2
    assert "estimated cost is up to $3.05, above --dollars 1" in capsys.readouterr().err
    assert not on_aws.exists()


def test_clean_up_only_deletes_leftovers(cloud: AwsTestBed, on_aws: Path) -> None:
    replace(cloud, run="crashed").queue("queue")
    assert cli.main(["aws-check", "--clean-up-only"]) == 0
    assert list(cleaning.leftovers(cloud.clients, None)) == []
