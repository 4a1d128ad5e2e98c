"""The subcommands as they are put together: the real adapters on moto, the host and the clock ours."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contracts.agent.config import EfsMount
from tests.node import configs
from tests.node.bench import Bench
from tests.node.configs import FakeClock
from tests.node.jobs import REGION, MakeNode, job, volumes
from tests.node.metadata import MetadataServer
from tests.node.units import DiskHost
from userdata.agent import tasks
from userdata.agent.aws.imds import LIFECYCLE_STATE
from userdata.agent.machine.background import at_once
from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.storage.volume.background_snapshots import BackgroundSnapshots
from userdata.agent.tasks import job as job_tasks
from userdata.agent.tasks import snapshots


@pytest.mark.parametrize("answers", [True, False], ids=["docker answers", "docker has stopped"])
def test_a_container_that_outlived_its_agent_ends_before_the_volume_is_given_back(
    answers: bool, aws: Any, make_node: MakeNode
) -> None:
    class Docker(DiskHost):
        def run(self, argv: Any, timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
            if argv[0] != "docker":
                return super().run(argv, timeout, stdin, environment)
            if not answers:
                raise AgentError("docker ps: exit 1: Cannot connect to the Docker daemon")
            asked.append((argv[1], self.mounted(one.data) is not None))
            return "0123456789ab\n"

    asked: list[tuple[str, bool]] = []
    one = make_node("a", "", Docker(aws))
    training = one.config.training
    assert training is not None
    one.config = replace(one.config, training=replace(training, image=f"a/b@sha256:{'0' * 64}"))
    assert tasks.volume(one, "up") == 0
    assert tasks.volume(one, "down") == 0
    assert asked == ([("ps", True), ("rm", True)] if answers else [])
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]


def test_a_volume_is_made_given_back_and_follows_to_another_zone(
    aws: Any, tmp_path: Path, make_node: MakeNode
) -> None:
    host, directory = DiskHost(aws), tmp_path / "first"
    first = make_node("a", "first", host)
    assert tasks.volume(first, "up") == 0
    assert volumes(aws) == [(f"{REGION}a", "in-use", "live")]
    assert json.loads((directory / "lease.json").read_text())["token"] == 1
    assert tasks.volume(first, "down") == 0
    assert tasks.volume(first, "down") == 0  # again, as ExecStop does after `run`
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]
    second = make_node("b", "second", host)
    assert tasks.volume(second, "up") == 0
    assert volumes(aws) == [(f"{REGION}b", "in-use", "live")]
    ours = aws.describe_snapshots(Filters=[{"Name": "tag-key", "Values": ["gpu-spot:job"]}])
    assert len(ours["Snapshots"]) == 1  # the newest stays


def test_the_volume_of_a_finished_job_stays_where_it_is(aws: Any, make_node: MakeNode) -> None:
    made = make_node()
    job_tasks.jobs(made).mark("done")
    assert tasks.volume(made, "up") == 0
    assert volumes(aws) == []


def test_nothing_is_leased_in_the_warm_pool(
    aws: Any, metadata_server: MetadataServer, clock: FakeClock, make_node: MakeNode
) -> None:
    made = make_node()
    metadata_server.documents[LIFECYCLE_STATE] = "Warmed:Stopped"
    waited: list[float] = []

    def leave_the_pool_later(seconds: float) -> None:
        waited.append(seconds)
        assert volumes(aws) == []
        if len(waited) == 3:
            metadata_server.documents[LIFECYCLE_STATE] = "InService"

    clock.on_sleep = leave_the_pool_later
    made.wait_outside_warm_pool()
    assert len(waited) == 3
    clock.on_sleep = lambda seconds: None
    tasks.volume(made, "up")
    assert len(volumes(aws)) == 1


def test_a_subcommand_for_the_other_kind_of_work_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="service is missing"):
        tasks.work(tasks.Node(configs.load(configs.training()), tmp_path, "http://x"))
    with pytest.raises(ConfigError, match="training is missing"):
        tasks.run(tasks.Node(configs.load(configs.service()), tmp_path, "http://x"))


MOUNTS = [{"fileSystem": "fs-1", "accessPoint": "fsap-1", "path": "/dltraining/checkpoints/resnet"}]
DATASETS = [{"snapshot": "snap-0123456789abcdef0", "device": "/dev/sdk", "path": "/data/a"}]


@pytest.fixture
def without_its_dataset(make_node: MakeNode) -> tuple[tasks.Node, list[Any]]:
    """A node whose dataset's volume never comes, and the commands that it ran."""
    made = make_node()
    ran: list[Any] = []
    made.host.run = lambda argv, timeout=60, stdin="": ran.append(argv) or ""  # type: ignore[method-assign, func-returns-value]
    return made, ran


def test_no_worker_starts_before_its_datasets_are_mounted(
    without_its_dataset: tuple[tasks.Node, list[Any]],
) -> None:
    made, ran = without_its_dataset
    made.config = configs.load(configs.service(datasets=DATASETS))
    with pytest.raises(AgentError, match="dataset /data/a: no volume at /dev/sdk yet"):
        tasks.work(made)
    assert ran == []


@pytest.fixture
def mount_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's folder can be written, whatever is mounted there: it is none of this machine's."""
    monkeypatch.setattr("userdata.agent.work.failures.inspection.check_writable", lambda path: ("", False))


@pytest.mark.usefixtures("mount_point")
def test_no_job_starts_before_its_datasets_are_mounted_and_a_host_without_them_is_replaced(
    without_its_dataset: tuple[tasks.Node, list[Any]], clock: FakeClock
) -> None:
    made, ran = without_its_dataset
    made.config = configs.load(configs.training(volume=None, efs=MOUNTS, datasets=DATASETS))
    made.spawn = lambda *_: pytest.fail("nothing may start")
    started_at = clock.monotonic()
    assert tasks.run(made) == 0
    switched_off = [argv[1:] for argv in ran if argv[0] == "shutdown"]
    assert switched_off == [["--poweroff", "+5"], ["--poweroff", "+0"]]
    assert 20 * 60 < clock.monotonic() - started_at < 60 * 60
    assert job()["hostFaults"]["M"]["count"] == {"N": "1"}
    assert job()["state"] == {"S": "running"}  # nothing is counted against the job


@pytest.mark.usefixtures("mount_point")
def test_no_job_starts_as_a_user_that_could_take_the_instances_role(make_node: MakeNode) -> None:
    made = make_node()
    made.config = configs.load(configs.training(volume=None, efs=MOUNTS))
    made.spawn = lambda *_: pytest.fail("nothing may start")

    def run(argv: Any, timeout: float = 60, stdin: str = "") -> str:
        if argv[0] in ("nft", "iptables"):
            raise AgentError(f"{argv[0]}: No such file or directory")
        return "990\n"

    made.host.run = run  # type: ignore[method-assign]
    assert tasks.run(made) == 0
    assert job()["state"] == {"S": "failed"}
    assert "cannot block user 990 from the instance metadata" in job()["reason"]["S"]


def test_nothing_is_mounted_or_written_where_the_data_volume_is_missing(make_node: MakeNode) -> None:
    """A failed `volume up` once left EFS below a root disk directory, and checkpoints next to it."""
    made = make_node()
    below = "/dltraining/checkpoints"
    mounts = [{"fileSystem": "fs-1", "accessPoint": "fsap-1", "path": path} for path in (below, "/models")]
    made.config = configs.load(configs.training(volume={"sizeGib": 1}, efs=mounts))
    ran: list[Any] = []
    made.host.run = lambda argv, timeout=60, stdin="": ran.append(argv) or ""  # type: ignore[method-assign, func-returns-value]
    assert tasks.efs(made) == 0
    assert [argv[-1] for argv in ran if argv[0] == "mount"] == ["/models"]
    with pytest.raises(AgentError, match=r"^/dltraining: the data volume is not mounted$"):
        made.mount()
    made.host.mounted = lambda path: "/dev/vol-1" if path == made.data else None  # type: ignore[method-assign]
    ran.clear()
    made.mount()
    assert [argv[-1] for argv in ran if argv[0] == "mount"] == [below, "/models"]


@pytest.fixture
def training(make_node: MakeNode) -> tasks.Node:
    """An instance whose data volume is here."""
    made = make_node("a", "run")
    made.run_in_background = at_once
    assert tasks.volume(made, "up") == 0
    return made


def taken(ec2: Any) -> list[dict[str, str]]:
    found = ec2.describe_snapshots(Filters=[{"Name": "tag-key", "Values": ["gpu-spot:job"]}])["Snapshots"]
    return [{tag["Key"]: tag["Value"] for tag in one["Tags"]} for one in found]


def made_for(training: tasks.Node) -> BackgroundSnapshots:
    found = snapshots.background_snapshots(training, lambda: True)
    assert found is not None
    return found


def test_a_snapshot_carries_the_lease_of_the_run_and_the_next_process_takes_no_second(
    aws: Any, training: tasks.Node
) -> None:
    made_for(training).poll()
    [tags] = taken(aws)
    [home] = aws.describe_volumes(Filters=[{"Name": "tag-key", "Values": ["gpu-spot:job"]}])["Volumes"]
    assert (tags["gpu-spot:token"], tags["gpu-spot:source"]) == ("1", home["VolumeId"])
    made_for(training).poll()
    assert len(taken(aws)) == 1


def test_none_is_taken_where_the_stack_wants_none_or_nothing_is_held(aws: Any, training: tasks.Node) -> None:
    assert training.config.volume is not None
    quiet = replace(training.config.volume, snapshot_every_minutes=0)
    wanted, training.config = training.config, replace(training.config, volume=quiet)
    assert snapshots.background_snapshots(training, lambda: True) is None
    training.config = wanted
    (training.directory / "lease.json").unlink()
    assert snapshots.background_snapshots(training, lambda: True) is None


def test_checkpoints_on_efs_are_no_reason_for_another(training: tasks.Node, tmp_path: Path) -> None:
    training.data = tmp_path
    newest = tmp_path / "checkpoints" / "resnet" / "step-1"
    newest.parent.mkdir(parents=True)
    newest.write_text("saved")
    assert made_for(training).schedule.last_changed_at() == newest.stat().st_mtime
    in_parent = newest.parent.parent / "epoch-7.h5"  # a script that knows no variable
    in_parent.write_text("saved")
    os.utime(in_parent, (2e9, 2e9))
    assert made_for(training).schedule.last_changed_at() == 2e9
    on_efs = EfsMount("fs-1", "fsap-1", str(newest.parent))
    training.config = replace(training.config, efs=(on_efs,))
    assert made_for(training).schedule.last_changed_at() == 0.0


def test_the_trainer_looks_after_it_while_the_command_runs(bench: Bench) -> None:
    bench.stand_still()
    looks: list[int] = []
    trainer = bench.trainer("sleep 0.3; exit 0")
    trainer._on_poll = lambda: looks.append(1)
    assert trainer.run() == "done"
    assert len(looks) > 3
