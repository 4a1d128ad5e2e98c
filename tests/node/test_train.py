from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests import models
from tests.node import configs
from tests.node.beats import BeatList
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from userdata.agent.aws.imds import Metadata
from userdata.agent.aws.jobs import Jobs, JobState
from userdata.agent.config.model import Training
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import notice
from userdata.agent.work.heart import Heart
from userdata.agent.work.train import Trainer, newest_checkpoint


class JobList:
    def __init__(self) -> None:
        self.marks: list[str] = []

    def finished(self) -> bool:
        return "done" in self.marks

    def mark(self, state: JobState) -> None:
        self.marks.append(state)

    def take_down(self) -> None:
        self.marks.append("taken down")


class Bench:
    def __init__(self, tmp: Path, clock: FakeClock, server: MetadataServer) -> None:
        self.tmp, self.clock, self.job, self.registry = tmp, clock, JobList(), BeatList()
        self.heart = Heart(self.registry, Metadata(clock, server.url), clock, tmp, 10.0)
        self.checkpoints = tmp / "data" / "checkpoints" / "resnet"
        self.checkpoints.mkdir(parents=True)
        self.starts: list[float] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def trainer(self, command: str, renew: Callable[[], None] | None = None, restarts: int = 2) -> Trainer:
        def spawn(argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
            self.starts.append(self.clock.monotonic())
            process = subprocess.Popen(argv, env=env, cwd=cwd, start_new_session=True)
            self.processes.append(process)
            return process

        training = Training(
            "resnet",
            "jobs",
            "repo",
            configs.REVISION,
            ("bash", "-c", command),
            "u",
            "p",
            max_restarts=restarts,
        )
        return Trainer(
            training,
            self.tmp,
            self.tmp / "data",
            self.tmp,
            self.job,
            self.heart,
            SystemHost(),
            self.clock,
            renew,
            spawn,
        )


@pytest.fixture
def bench(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Iterator[Bench]:
    bench = Bench(tmp_path, clock, metadata_server)
    yield bench
    for process in bench.processes:
        process.kill()
        process.wait()


def test_a_command_that_ends_well_makes_the_job_done_and_takes_the_capacity_down(bench: Bench) -> None:
    assert bench.trainer("test $GPU_SPOT_JOB = resnet && test -d $GPU_SPOT_CHECKPOINTS").run() is True
    assert bench.job.marks == ["running", "done", "taken down"]
    assert bench.registry.left == [0]


def test_failures_are_bounded_and_the_pauses_grow(bench: Bench) -> None:
    assert bench.trainer("exit 3").run() is True
    assert bench.job.marks == ["running", "failed", "taken down"]
    assert len(bench.starts) == 3
    assert bench.starts[2] - bench.starts[1] > bench.starts[1] - bench.starts[0] >= 5


def test_progress_starts_the_count_anew(bench: Bench) -> None:
    script = (
        "n=$(ls $GPU_SPOT_CHECKPOINTS | wc -l); test $n -ge 5 && exit 0; "
        "sleep 0.02; touch $GPU_SPOT_CHECKPOINTS/$n; exit 1"
    )
    assert bench.trainer(script, restarts=1).run() is True
    assert bench.job.marks[-2:] == ["done", "taken down"]
    assert len(bench.starts) == 6


@pytest.mark.parametrize("says_done", [False, True])
def test_sigterm_is_passed_on_and_exit_0_is_then_a_save_and_not_the_end(
    bench: Bench, says_done: bool
) -> None:
    done = "touch $GPU_SPOT_DONE;" if says_done else ""
    trainer = bench.trainer(
        f"trap '{done} touch $GPU_SPOT_CHECKPOINTS/saved; exit 0' TERM; touch up; while :; do sleep .02; done"
    )

    def stop_when_up(seconds: float) -> None:
        if (bench.tmp / "up").exists() and not (bench.checkpoints / "saved").exists():
            trainer.stop()
            bench.processes[0].wait(20)  # simulated time stands still while a real process saves

    bench.clock.on_sleep = stop_when_up
    assert trainer.run() is says_done
    assert (bench.checkpoints / "saved").exists()
    assert bench.job.marks == (["running", "done", "taken down"] if says_done else ["running"])
    assert len(bench.starts) == 1


def test_a_wrapper_does_not_cost_the_save(bench: Bench) -> None:
    """Bash dies of the signal at once; what it runs in front still saves, and is waited for."""
    (bench.tmp / "run.sh").write_text(
        'sh -c \'trap "sleep 0.3; touch $GPU_SPOT_CHECKPOINTS/saved; exit 0" TERM; touch up; '
        "while :; do sleep .02; done'\necho never\n"
    )
    trainer = bench.trainer("bash run.sh; true")
    bench.clock.on_sleep = lambda s: trainer.stop() if (bench.tmp / "up").exists() else time.sleep(0.01)
    assert trainer.run() is False
    assert (bench.checkpoints / "saved").exists()


def test_a_training_that_does_not_end_is_killed_shortly_before_the_instance_is_taken(bench: Bench) -> None:
    trainer = bench.trainer("trap '' TERM; touch up; while :; do sleep .02; done")
    told: list[float] = []

    def stop_when_up(seconds: float) -> None:
        if not (bench.tmp / "up").exists():
            time.sleep(0.01)
        elif not told:
            found = notice.from_lifecycle("Terminated", bench.clock.wall(), 120.0)
            notice.write(bench.tmp, found)
            told.append(found.deadline)
            trainer.stop()
        elif told[0] - bench.clock.wall() <= 9.5:
            bench.processes[0].wait(20)  # simulated time stands still while a real process dies

    bench.clock.on_sleep = stop_when_up
    assert trainer.run() is False
    assert bench.processes[0].returncode == -signal.SIGKILL
    assert 9 <= told[0] - bench.clock.wall() <= 10


def test_the_age_of_checkpoints_is_that_of_the_newest_file_at_any_depth(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "none") == 0.0
    deep = tmp_path / "step-1" / "rank-0" / "shard"
    deep.parent.mkdir(parents=True)
    deep.touch()
    for age, path in enumerate((deep, deep.parent, deep.parent.parent), start=1):
        os.utime(path, (1000.0 * age, 1000.0 * age))
    assert newest_checkpoint(tmp_path) == 1000.0  # a folder's time changes when something is deleted from it
    (tmp_path / "latest").symlink_to(tmp_path / "step-0")  # rotated away
    os.utime(tmp_path / "latest", (5000.0, 5000.0), follow_symlinks=False)
    assert newest_checkpoint(tmp_path) == 5000.0
    (tmp_path / ".done").touch()
    (tmp_path / "step-1" / ".writing").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    os.utime(tmp_path / "loop", (1.0, 1.0), follow_symlinks=False)
    assert newest_checkpoint(tmp_path) == 5000.0


def test_a_checkpoint_that_is_rotated_away_meanwhile_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").touch()
        os.utime(tmp_path / name / "weights", (7.0, 7.0))
    scan = os.scandir

    def rotating(path: str) -> Any:
        if str(path).endswith("old"):
            shutil.rmtree(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", rotating)
    assert newest_checkpoint(tmp_path) == 7.0


def test_a_lost_lease_stops_the_training(bench: Bench) -> None:
    def renew() -> None:
        raise LeaseLostError("taken over")

    trainer = bench.trainer("while :; do sleep 0.02; done", renew)
    with pytest.raises(LeaseLostError):
        trainer.run()
    assert bench.processes[0].poll() is not None
    assert bench.job.marks == ["running"]


def test_a_renewal_that_fails_for_another_reason_does_not(bench: Bench) -> None:
    renewals: list[float] = []

    def renew() -> None:
        renewals.append(bench.clock.monotonic())
        raise AgentError("DynamoDB is away")

    trainer = bench.trainer("while test ! -e stop; do sleep 0.02; done", renew)
    bench.clock.on_sleep = lambda s: (bench.tmp / "stop").touch() if len(renewals) >= 3 else None
    assert trainer.run() is True
    assert {round(b - a, 1) for a, b in pairwise(renewals)} == {30.0}


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> Iterator[Callable[[str], Jobs]]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with models.moto():
        dynamodb: Any = boto3.client("dynamodb", region_name="us-west-2")
        ssm: Any = boto3.client("ssm", region_name="us-west-2")
        dynamodb.create_table(
            TableName="jobs",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "job", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "job", "AttributeType": "S"}],
        )
        ssm.put_parameter(Name="/t", Value="none", Type="String")
        yield lambda revision: Jobs(dynamodb, ssm, "jobs", "resnet", revision, "/t", clock)
        assert ssm.get_parameter(Name="/t")["Parameter"]["Value"] == "b" * 40


def test_a_done_job_stays_done_for_its_revision(jobs: Callable[[str], Jobs]) -> None:
    job = jobs("a" * 40)
    assert not job.finished()
    job.mark("running")
    job.mark("done")
    job.mark("running")  # a late instance
    assert job.finished()
    assert not jobs("b" * 40).finished()
    jobs("b" * 40).mark("running")
    assert not jobs("b" * 40).finished()
    job.take_down()
    jobs("b" * 40).take_down()
