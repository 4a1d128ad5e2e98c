"""The preparation of a launch: it completes the hook, or gives the launch up in time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.jobs import REGION
from tests.node.metadata import MetadataServer
from tests.node.units import CommandHost
from userdata.agent import tasks
from userdata.agent.aws import clients
from userdata.agent.aws.imds import GROUP_TAG
from userdata.agent.machine.background import at_once
from userdata.agent.machine.errors import AgentError


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
    _, pulled, tried = host.ran
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
        return "" if argv[1] == "image" else "GPU 0: a double"

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
    with pytest.raises(AgentError, match=r"containers get no GPU: .*install a CDI specification"):
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
