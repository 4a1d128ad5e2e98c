"""``gpu-spot drill`` on a deployed stack: confirmation, start, polling and end, without sleeping."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from gpu_spot import cli
from gpu_spot.commands import drill
from gpu_spot.commands.drill import DrillError
from gpu_spot.declared.stackfile import load
from gpu_spot.errors import AwsRefusalError
from gpu_spot.jobs.report import JobReport
from gpu_spot.jobs.status import job_status
from gpu_spot.status.reader import StackReader
from gpu_spot.status.snapshot import ActiveAlarm, DeclaredEntries, GroupSnapshot, StackSnapshot
from lambdas.core.model import GroupRole, Instance, Pool, PurchaseOption
from tests.jobs.snapshots import job, row

POOL = Pool("g6.xlarge", "us-west-2a")
TAGS = {"gpu-spot:stack": "prod", "gpu-spot:group": "inference"}


class Fis:
    """A stub of FIS: templates with these tags, and experiments in this state."""

    def __init__(self, status: str = "running", tags: dict[str, str] = TAGS) -> None:
        self.status, self.tags = status, tags
        self.started: list[str] = []

    def get_paginator(self, _: str) -> Fis:
        return self

    def paginate(self) -> list[dict[str, Any]]:
        return [{"experimentTemplates": [{"id": "other"}, {"id": "EXT1", "tags": self.tags}]}]

    def start_experiment(self, **given: Any) -> dict[str, Any]:
        self.started.append(given["experimentTemplateId"])
        return {"experiment": {"id": "EXP1"}}

    def get_experiment(self, id: str) -> dict[str, Any]:  # noqa: A002
        return {"experiment": {"state": {"status": self.status, "reason": "no target"}}}


def instance(name: str, *, ready: bool = True, deadline: float | None = None) -> Instance:
    return Instance(
        name, POOL, PurchaseOption.SPOT, GroupRole.PRIMARY, 0.0, 10.0 if ready else None, deadline
    )


def group(*instances: Instance) -> GroupSnapshot:
    return GroupSnapshot("inference", target=2, instances=instances)


def stack(
    group: GroupSnapshot, now: float = 0.0, alarms: tuple[ActiveAlarm, ...] = (), *jobs: JobReport
) -> StackSnapshot:
    return StackSnapshot("prod", "us-west-2", now, alarms, (group,), (), jobs, DeclaredEntries({}), 1)


WHOLE = group(instance("a"), instance("b"))
NOTICED = group(instance("a", deadline=130.0), instance("b"))
BOOTING = group(instance("b"), instance("c", ready=False))
REPLACED = group(instance("b"), instance("c"))


class Deployed:
    """A stack with scripted snapshots by start time; waiting advances its clock."""

    def __init__(self, *stands: tuple[float, StackSnapshot | GroupSnapshot]) -> None:
        self.stands, self.now = stands, 0.0

    def read(self) -> StackSnapshot:
        seen = [stand for since, stand in self.stands if since <= self.now][-1]
        return replace(seen, now=self.now) if isinstance(seen, StackSnapshot) else stack(seen, self.now)

    def wait(self) -> None:
        self.now += 10.0


@pytest.fixture
def args() -> argparse.Namespace:
    return cli.parser("drill").parse_args(["drill", "--stack", "prod", "--group", "inference", "--yes"])


def report(state: str, **more: Any) -> JobReport:
    snapshot = job(row=row(state=state, **more))
    return JobReport(snapshot, job_status(snapshot))


def test_a_drill_shows_the_status_until_the_group_is_whole_again(
    args: argparse.Namespace, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed, fis = Deployed((0.0, WHOLE), (10.0, NOTICED), (130.0, BOOTING), (200.0, REPLACED)), Fis()
    assert drill.follow(args, fis, deployed.read, deployed.wait) == 0
    assert (fis.started, deployed.now) == (["EXT1"], 200.0)
    output = capsys.readouterr()
    assert "started AWS FIS experiment EXP1; it continues if this command ends" in output.err
    assert "inference recovered 3.3 minutes after the start\ninterrupted: a\n" in output.out


@pytest.mark.parametrize(
    ("stands", "seconds"),
    [
        (((0.0, WHOLE),), drill.NOTICE_TIMEOUT_SECONDS),
        (((0.0, WHOLE), (10.0, NOTICED), (130.0, BOOTING)), drill.DRILL_TIMEOUT_SECONDS),
        # All slots are ready beside the instance that drains: it is not over before it is gone.
        (((0.0, WHOLE), (10.0, group(*NOTICED.instances, instance("c")))), drill.DRILL_TIMEOUT_SECONDS),
    ],
)
def test_a_drill_without_interruption_or_recovery_fails(
    args: argparse.Namespace, stands: tuple[tuple[float, GroupSnapshot], ...], seconds: float
) -> None:
    deployed = Deployed(*stands)
    assert drill.follow(args, Fis(), deployed.read, deployed.wait) == 1
    assert deployed.now == seconds


@pytest.mark.parametrize(
    ("snapshot", "error"),
    [
        (stack(replace(WHOLE, error="parameter inference/config is missing")), "config is missing"),
        (
            stack(WHOLE, 0.0, (ActiveAlarm("inference-shortage", 0.0, ""),)),
            "active alarms: inference-shortage",
        ),
        (stack(replace(WHOLE, instances=WHOLE.instances[:1])), "misses 1 of 2"),
        (stack(group(*WHOLE.instances, instance("c", deadline=9.0))), "has interrupted instances"),
        (
            stack(
                group(*(replace(one, purchase_option=PurchaseOption.ON_DEMAND) for one in WHOLE.instances))
            ),
            "has no Spot Instance to interrupt",
        ),
        (
            stack(WHOLE, 0.0, (), report("failed", reason="no GPU")),
            "resnet is failed: no GPU; a drill requires a running job",
        ),
    ],
)
def test_a_drill_requires_a_complete_group_without_alarms(
    args: argparse.Namespace, snapshot: StackSnapshot, error: str
) -> None:
    fis = Fis()
    with pytest.raises(DrillError, match=error):
        drill.follow(args, fis, Deployed((0.0, snapshot)).read, lambda: None)
    assert fis.started == []


def test_a_missing_template_names_the_setting(args: argparse.Namespace) -> None:
    fis = Fis(tags={**TAGS, "gpu-spot:group": "other"})
    with pytest.raises(DrillError, match=r"set capacity\.drill in the stack file"):
        drill.follow(args, fis, Deployed((0.0, WHOLE)).read, lambda: None)


def test_nothing_starts_without_a_confirmation(args: argparse.Namespace) -> None:
    args.yes, fis = False, Fis()
    with pytest.raises(DrillError, match="use --yes"):
        drill.follow(args, fis, Deployed((0.0, WHOLE)).read, lambda: None)
    assert fis.started == []


@pytest.mark.parametrize("status", ["failed", "stopped"])
def test_an_experiment_without_interruption_is_an_error(args: argparse.Namespace, status: str) -> None:
    deployed = Deployed((0.0, WHOLE))
    with pytest.raises(DrillError, match=f"EXP1 of group 'inference' has {status}: no target"):
        drill.follow(args, Fis(status), deployed.read, deployed.wait)


def test_a_stopped_experiment_is_followed_if_it_interrupted_instances(args: argparse.Namespace) -> None:
    deployed = Deployed((0.0, WHOLE), (10.0, NOTICED), (130.0, REPLACED))
    assert drill.follow(args, Fis("stopped"), deployed.read, deployed.wait) == 0


def test_an_error_of_aws_is_one_line_with_stack_and_region(
    args: argparse.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Fis):
        def start_experiment(self, **_: Any) -> dict[str, Any]:
            error = {"Error": {"Code": "ServiceQuotaExceededException", "Message": "too many"}}
            raise ClientError(error, "StartExperiment")  # type: ignore[arg-type]

    class Client:
        """Any client: it registers hooks of events."""

        def __getattr__(self, _: str) -> Any:
            return self

        def __call__(self, *_: Any, **__: Any) -> Any:
            return self

    monkeypatch.setattr(StackReader, "read", lambda *_: stack(WHOLE))
    config = load(Path(__file__).parents[2], "prod")
    with pytest.raises(AwsRefusalError, match=r"^stack 'prod' in \S+: .*ServiceQuotaExceeded") as raised:
        drill.act(args, lambda name: Refusing() if name == "fis" else Client(), config)
    assert "\n" not in str(raised.value)
