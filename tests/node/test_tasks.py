"""The subcommands as they are put together: the real adapters on moto, the host and the clock ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from contracts.agent.config import EfsMount
from tests.node import configs
from tests.node.bench import Bench
from tests.node.configs import FakeClock
from tests.node.jobs import REGION, MakeNode, job, volumes
from tests.node.metadata import MetadataServer
from tests.node.units import CommandHost, DiskHost
from userdata.agent import tasks
from userdata.agent.aws import clients
from userdata.agent.aws.imds import GROUP_TAG, LIFECYCLE_STATE
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
    with pytest.raises(ConfigError, match="service: missing"):
        tasks.work(tasks.Node(configs.load(configs.training()), tmp_path, "http://x"))
    with pytest.raises(ConfigError, match="training: missing"):
        tasks.run(tasks.Node(configs.load(configs.service()), tmp_path, "http://x"))


class Group:
    """Lifecycle hooks, which moto cannot complete; ``begins``: at which question one is active."""

    def __init__(self, begins: int) -> None:
        self.begins, self.asked = begins, 0
        self.completed: list[dict[str, str]] = []
        self.extended: list[dict[str, str]] = []

    def complete_lifecycle_action(self, **call: str) -> None:
        self.asked += 1
        if self.asked < self.begins:
            text = "No active Lifecycle Action found with instance ID i-1"
            raise ClientError({"Error": {"Code": "ValidationError", "Message": text}}, "Complete")
        self.completed.append(call)

    def record_lifecycle_action_heartbeat(self, **call: str) -> None:
        self.extended.append(call)
        if len(self.extended) == 2:
            raise ClientError({"Error": {"Code": "Throttling", "Message": "m"}}, "Record")


IMAGE = f"example.com/worker@sha256:{'0' * 64}"


class NothingReleased:
    """The agent's clients where workers start from what is declared."""

    def dynamodb(self, region: str) -> Any:
        return SimpleNamespace(get_item=lambda **asked: {})

    def __getattr__(self, service: str) -> Any:
        return getattr(clients, service)


def launching(
    server: MetadataServer,
    clock: FakeClock,
    directory: Path,
    hooks: dict[str, Any] | None,
    image: str = IMAGE,
) -> tuple[tasks.Node, CommandHost]:
    """A node of a service in its launch, named by its tag; its GPU is declared, there is no driver here."""
    server.identify("i-1", "a", "g4ad.xlarge", REGION)
    server.documents[GROUP_TAG] = "asg-of-tag"
    work = {"image": image, "gpus": 1} if image else {"command": ["sleep", "infinity"], "gpus": 1}
    config = configs.load(configs.service(hooks=hooks, service=work))
    made, host = tasks.Node(config, directory, server.url), CommandHost(run="GPU 0: a double\n")
    made.run_in_background = at_once
    made.clock, made.host, made.clients = clock, host, NothingReleased()
    return made, host


Launch = Callable[[int], tuple[Group, tasks.Node, CommandHost]]


@pytest.fixture
def launch(
    metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Launch:
    """Launch an instance whose hook is active from a given question on."""

    def begin(begins: int) -> tuple[Group, tasks.Node, CommandHost]:
        group = Group(begins)
        monkeypatch.setattr(clients, "autoscaling", lambda region: group)
        return group, *launching(metadata_server, clock, tmp_path, {"launch": "prepared"})

    return begin


def test_preparation_pulls_the_image_and_then_lets_a_launch_that_begins_late_go_on(launch: Launch) -> None:
    group, made, host = launch(3)
    assert tasks.prepare(made) == 0
    pulled, tried = host.ran
    assert pulled == ["docker", "pull", "--quiet", IMAGE]
    assert tried[:2] == ["docker", "run"]
    assert tried[-3:] == ["nvidia-smi", IMAGE, "--list-gpus"]
    assert group.completed == [
        {
            "AutoScalingGroupName": "asg-of-tag",
            "LifecycleHookName": "prepared",
            "InstanceId": "i-1",
            "LifecycleActionResult": "CONTINUE",
        }
    ]


def slow_pull(host: CommandHost, clock: FakeClock, seconds: float) -> None:
    """Let a pull take so long, during which the host polls as it does for a real command."""

    def run(argv: Any, timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        end = clock.monotonic() + (seconds if argv[1] == "pull" else 0.0)
        while clock.monotonic() < end:
            assert host._polling.on_poll
            host._polling.on_poll()
            clock.advance(30)
        return "GPU 0: a double"

    host.run = run  # type: ignore[method-assign]


def restarts(made: tasks.Node, clock: FakeClock) -> AgentError:
    """Run the unit as systemd does until that does not restart it; no launch may hold it for two hours."""
    started = clock.monotonic()
    while clock.monotonic() - started < 7200:
        try:
            pytest.fail(f"prepared: {tasks.prepare(made)}")
        except AgentError as error:
            if error.exit_code in (77, 78):
                return error
        clock.advance(10)
    raise AssertionError("the launch never ends")


def test_a_launch_waits_for_a_pull_that_takes_longer_than_its_hook(launch: Launch, clock: FakeClock) -> None:
    group, made, host = launch(1)
    slow_pull(host, clock, 1800)
    assert tasks.prepare(made) == 0
    assert len(group.extended) == 8  # at once, then every four minutes, also after one that AWS refused
    assert group.extended[0] == {
        "AutoScalingGroupName": "asg-of-tag",
        "LifecycleHookName": "prepared",
        "InstanceId": "i-1",
    }
    assert [call["LifecycleActionResult"] for call in group.completed] == ["CONTINUE"]
    tasks.prepare(made)  # another launch of this boot has its own hour
    assert len(group.completed) == 2


@pytest.mark.parametrize("seconds", [1e9, 500.0], ids=["a pull without end", "pulls that fail late"])
def test_a_pull_without_success_is_given_up_after_an_hour(
    launch: Launch, clock: FakeClock, failures: list[str], seconds: float
) -> None:
    group, made, host = launch(1)
    slow_pull(host, clock, seconds)
    if seconds < 1e9:
        pull = host.run

        def late(argv: Any, timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
            pull(argv)
            raise AgentError("docker: exit 1: unexpected EOF")

        host.run = late  # type: ignore[method-assign]
    started = clock.monotonic()
    assert restarts(made, clock).exit_code == 77
    assert clock.monotonic() - started < 3700
    assert [call["LifecycleActionResult"] for call in group.completed] == ["ABANDON"]
    assert failures == ["BootFailures"]
    assert len(group.extended) <= 15


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The alarm metrics that are counted."""
    counted: list[str] = []
    cloudwatch = SimpleNamespace(
        put_metric_data=lambda **call: counted.append(call["MetricData"][0]["MetricName"])
    )
    monkeypatch.setattr(clients, "cloudwatch", lambda region: cloudwatch)
    return counted


@pytest.mark.parametrize("program", ["pull", "run"])
def test_a_preparation_that_fails_at_once_abandons_its_launch_before_the_hook_times_out(
    launch: Launch, clock: FakeClock, failures: list[str], program: str
) -> None:
    group, made, host = launch(1)
    host.answers[program] = AgentError("docker: exit 125: Error saving credentials")
    started = clock.monotonic()
    assert "9 minutes of tries: docker: exit 125: Error saving credentials" in str(restarts(made, clock))
    assert 500 < clock.monotonic() - started < 600
    assert len(group.extended) == 1
    assert [call["LifecycleActionResult"] for call in group.completed] == ["ABANDON"]
    assert failures == ["BootFailures"]


def test_a_preparation_that_fails_on_an_instance_in_service_counts_as_no_failed_boot(
    launch: Launch, clock: FakeClock, failures: list[str]
) -> None:
    group, made, host = launch(10_000)
    host.answers["pull"] = AgentError("docker: exit 1: no route to host")
    assert restarts(made, clock).exit_code == 77
    assert (group.completed, failures) == ([], [])
    del host.answers["pull"]
    assert tasks.prepare(made) == 0  # a person restarts the unit


def test_a_launch_that_cannot_be_abandoned_is_tried_again(
    launch: Launch, clock: FakeClock, failures: list[str]
) -> None:
    group, made, host = launch(1)
    host.answers["pull"] = AgentError("docker: exit 1: no route to host")
    asked: list[float] = []

    def unreachable(**call: str) -> None:
        asked.append(clock.monotonic())
        if len(asked) < 3:
            raise ClientError({"Error": {"Code": "ServiceUnavailable", "Message": "m"}}, "Complete")
        group.completed.append(call)

    group.complete_lifecycle_action = unreachable  # type: ignore[method-assign]
    assert restarts(made, clock).exit_code == 77
    assert (len(asked), failures) == (3, ["BootFailures"])


def test_a_restart_that_is_no_launch_ends_the_preparation(launch: Launch, clock: FakeClock) -> None:
    group, made, _ = launch(10_000)
    started = clock.monotonic()
    assert tasks.prepare(made) == 0
    assert 120 <= clock.monotonic() - started < 130
    assert group.completed == []


def test_a_hook_outside_of_a_group_is_an_error_that_names_it(
    metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path
) -> None:
    made, _ = launching(metadata_server, clock, tmp_path, {"launch": "prepared"}, image="")
    del metadata_server.documents[GROUP_TAG]
    with pytest.raises(AgentError, match="lifecycle hook prepared: the instance is in no Auto Scaling group"):
        tasks.prepare(made)


def test_a_launch_is_not_completed_if_containers_get_no_gpu(launch: Launch) -> None:
    group, made, host = launch(1)

    host.answers["run"] = AgentError("docker: exit 125: unresolvable CDI devices nvidia.com/gpu=all")
    with pytest.raises(AgentError, match=r"containers get no GPU: .*allowed: a CDI specification"):
        tasks.prepare(made)
    assert group.completed == []


@pytest.mark.parametrize("folder", ["", "etc/cdi", "var/run/cdi"])
def test_workers_of_an_instance_without_a_launch_hook_have_the_specification_of_its_gpus(
    metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path, folder: str
) -> None:
    """Only ``prepare`` wrote it, which runs for a hook; toolkits from 1.18 on write it themselves."""
    made, host = launching(metadata_server, clock, tmp_path, None)
    made.kernel = tmp_path
    if folder:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "nvidia.yaml").touch()
    host.answers["nvidia-ctk"] = AgentError("nvidia-ctk: No such file")  # the worker's start says why

    def stop() -> None:
        raise InterruptedError

    made.wait_outside_warm_pool = stop  # type: ignore[assignment]
    with pytest.raises(InterruptedError):
        tasks.work(made)
    generated = [argv for argv in host.ran if argv[0] == "nvidia-ctk"]
    assert generated == (
        [] if folder else [["nvidia-ctk", "cdi", "generate", "--output=/var/run/cdi/nvidia.yaml"]]
    )


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
    made.run_in_background = lambda work: work()
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
