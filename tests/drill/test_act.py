"""``gpu-spot drill`` on a deployed stack as a whole: asked, started, watched, reported; nobody sleeps."""

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
from gpu_spot.drill.course import NOTICE_WITHIN
from gpu_spot.drill.experiment import DrillError, DrillExperiments
from gpu_spot.drill.watching import Drill
from gpu_spot.status.seen import GroupSeen, StackSeen
from pulumi_on_moto import StackConfig
from tests.docs.keys import documented
from tests.drill.test_course import WHOLE, group, instance
from tests.drill.test_watching import Fis, no_story, stack

CONFIG = StackConfig("gpu-spot", "prod", Path(), {"aws:region": "us-west-2"})
BEREFT = group(instance("b"), instance("c", ready=False))


class Deployed:
    """A group that stands as told from a second on, until the next; waiting is what moves its clock."""

    def __init__(self, *stands: tuple[float, GroupSeen]) -> None:
        self.stands, self.now, self.waits = stands, 0.0, 0

    def look(self) -> StackSeen:
        return stack([seen for since, seen in self.stands if since <= self.now][-1], self.now)

    def wait(self) -> None:
        self.now += drill.LOOK_EVERY
        self.waits += 1


@pytest.fixture
def args(tmp_path: Path) -> argparse.Namespace:
    words = ["--stack", "prod", "--group", "inference", "--yes", "--json", "--out", str(tmp_path)]
    return cli.parser("drill").parse_args(["drill", *words])


def acted(args: argparse.Namespace, deployed: Deployed, fis: Fis, monkeypatch: pytest.MonkeyPatch) -> int:
    made = Drill(DrillExperiments(fis, "dev", "inference"), deployed.look, no_story)
    monkeypatch.setattr(drill, "drill_of", lambda *_: made)
    return drill.act(args, lambda _: None, CONFIG, deployed.wait)


def test_it_is_watched_until_the_group_is_whole_again_and_reported(
    args: argparse.Namespace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = instance("a", deadline=130.0)
    deployed = Deployed(
        (0.0, WHOLE),
        (10.0, group(doomed, instance("b"))),
        (130.0, BEREFT),
        (200.0, group(instance("b"), instance("c"))),
    )
    fis = Fis()
    assert acted(args, deployed, fis, monkeypatch) == 0
    assert (fis.started, deployed.waits) == (["EXT1"], 20)
    said = capsys.readouterr()
    assert "experiment EXP1 of AWS FIS goes on, whether it is watched or not" in said.err
    report = json.loads(said.out)
    assert report.keys() == documented("drill")
    assert json.loads((args.out / "prod-inference.json").read_text("utf-8")) == report
    assert (report["stack"], report["rehearsed"], report["made_good_after"]) == ("prod", False, 200.0)
    assert [(one["noticed_after"], one["gone_after"]) for one in report["lost"]] == [(10.0, 130.0)]


def test_a_drill_that_takes_nobody_ends_and_is_no_success(
    args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = Deployed((0.0, WHOLE))
    assert acted(args, deployed, Fis(), monkeypatch) == 1
    assert deployed.now == NOTICE_WITHIN


def test_what_is_refused_takes_nobody_and_leaves_no_report(
    args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fis = Fis()
    with pytest.raises(DrillError, match="misses 1 of 2"):
        acted(args, Deployed((0.0, replace(WHOLE, instances=WHOLE.instances[:1]))), fis, monkeypatch)
    assert (fis.started, list(args.out.iterdir())) == ([], [])


def test_an_error_of_aws_is_one_line_with_stack_and_region(
    args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Fis):
        def start_experiment(self, **_: Any) -> dict[str, Any]:
            error = {"Error": {"Code": "ServiceQuotaExceededException", "Message": "too many"}}
            raise ClientError(error, "StartExperiment")  # type: ignore[arg-type]

    with pytest.raises(DrillError, match=r"^stack 'prod' in us-west-2: .*ServiceQuotaExceeded") as told:
        acted(args, Deployed((0.0, WHOLE)), Refusing(), monkeypatch)
    assert "\n" not in str(told.value)
