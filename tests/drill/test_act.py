"""``gpu-spot drill`` on a deployed stack: confirmation, start, polling and report, without sleeping."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gpu_spot import cli
from gpu_spot.commands.deployed import drill
from gpu_spot.drill.experiment import DrillError, DrillExperiments
from gpu_spot.drill.progress import NOTICE_TIMEOUT_SECONDS
from gpu_spot.drill.watching import Drill
from gpu_spot.status.snapshot import GroupSnapshot, StackSnapshot
from pulumi_on_moto import StackConfig
from tests.docs.keys import documented
from tests.drill.test_progress import WHOLE, group, instance
from tests.drill.test_watching import Fis, no_timeline, stack

CONFIG = StackConfig("gpu-spot", "prod", Path(), {"aws:region": "us-west-2"})
ONE_LOST = group(instance("b"), instance("c", ready=False))


class Deployed:
    """A group with scripted snapshots by start time; waiting advances its clock."""

    def __init__(self, *stands: tuple[float, GroupSnapshot]) -> None:
        self.snapshots, self.now, self.polls = stands, 0.0, 0

    def read_stack(self) -> StackSnapshot:
        return stack([seen for since, seen in self.snapshots if since <= self.now][-1], self.now)

    def wait(self) -> None:
        self.now += drill.POLL_SECONDS
        self.polls += 1


@pytest.fixture
def args(tmp_path: Path) -> argparse.Namespace:
    words = ["--stack", "prod", "--group", "inference", "--yes", "--json", "--out", str(tmp_path)]
    return cli.parser("drill").parse_args(["drill", *words])


def run_drill(args: argparse.Namespace, deployed: Deployed, fis: Fis, monkeypatch: pytest.MonkeyPatch) -> int:
    prepared = Drill(DrillExperiments(fis, "dev", "inference"), deployed.read_stack, no_timeline)
    monkeypatch.setattr(drill, "create_drill", lambda *_: prepared)
    return drill.act(args, lambda _: None, CONFIG, deployed.wait)


def test_a_drill_waits_for_the_recovery_and_writes_a_report(
    args: argparse.Namespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = instance("a", deadline=130.0)
    deployed = Deployed(
        (0.0, WHOLE),
        (10.0, group(interrupted, instance("b"))),
        (130.0, ONE_LOST),
        (200.0, group(instance("b"), instance("c"))),
    )
    fis = Fis()
    assert run_drill(args, deployed, fis, monkeypatch) == 0
    assert (fis.started, deployed.polls) == (["EXT1"], 20)
    output = capsys.readouterr()
    assert "started AWS FIS experiment EXP1; it continues if this command ends" in output.err
    report = json.loads(output.out)
    assert report.keys() == documented("drill")
    assert json.loads((args.out / "prod-inference.json").read_text("utf-8")) == report
    assert (report["stack"], report["rehearsed"], report["made_good_after"]) == ("prod", False, 200.0)
    assert [(one["noticed_after"], one["gone_after"]) for one in report["lost"]] == [(10.0, 130.0)]


def test_a_drill_without_interruption_fails(
    args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = Deployed((0.0, WHOLE))
    assert run_drill(args, deployed, Fis(), monkeypatch) == 1
    assert deployed.now == NOTICE_TIMEOUT_SECONDS


def test_a_rejected_drill_interrupts_nothing_and_writes_no_report(
    args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fis = Fis()
    with pytest.raises(DrillError, match="misses 1 of 2"):
        run_drill(args, Deployed((0.0, replace(WHOLE, instances=WHOLE.instances[:1]))), fis, monkeypatch)
    assert (fis.started, list(args.out.iterdir())) == ([], [])


def test_an_error_of_aws_is_one_line_with_stack_and_region(
    args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Fis):
        def start_experiment(self, **_: Any) -> dict[str, Any]:
            error = {"Error": {"Code": "ServiceQuotaExceededException", "Message": "too many"}}
            raise ClientError(error, "StartExperiment")  # type: ignore[arg-type]

    with pytest.raises(DrillError, match=r"^stack 'prod' in us-west-2: .*ServiceQuotaExceeded") as raised:
        run_drill(args, Deployed((0.0, WHOLE)), Refusing(), monkeypatch)
    assert "\n" not in str(raised.value)
