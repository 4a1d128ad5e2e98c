"""Hand-over between instances: a successor waits for the lease, then attaches the volume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.node import configs
from tests.node.clocks import FakeClock
from tests.node.jobs import REGION, job, node, row, volumes, write_notice
from tests.node.metadata import MetadataServer
from tests.node.units import DiskHost
from userdata.agent import tasks
from userdata.agent.machine.errors import RefusedError
from userdata.agent.tasks import job as job_tasks


@pytest.fixture
def held(aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path) -> tasks.Node:
    """An instance that has the job's volume."""
    made = node(aws, metadata_server, clock, tmp_path / "holder", f"{REGION}a", DiskHost(aws))
    tasks.volume(made, "up")
    made.heartbeat_sender().deregister(0)
    return made


def test_a_waiting_instance_reports_since_when(
    held: tasks.Node, aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path
) -> None:
    successor = node(aws, metadata_server, clock, tmp_path / "successor", f"{REGION}b", DiskHost(aws))
    began, seen = clock.wall(), []

    def watch(seconds: float) -> None:
        if found := row():
            seen.append((found["state"], int(found["since"]), clock.wall() - int(found["heartbeat"])))
        if clock.wall() - began > 60 and "holder" in job():
            clock.on_sleep = lambda seconds: None
            tasks.volume(held, "down")
            clock.on_sleep = watch

    clock.on_sleep = watch
    assert tasks.volume(successor, "up") == 0
    assert job()["holder"]["S"] == successor.identity.instance
    assert {(state, since) for state, since, _ in seen} == {("waiting", int(began))}
    assert max(age for _, _, age in seen) <= successor.config.heartbeat_seconds + 5
    assert clock.wall() - began > 60


def test_a_successor_that_is_taken_leaves_the_lease_alone_and_its_notice_in_the_registry(
    held: tasks.Node, aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path
) -> None:
    directory = tmp_path / "successor"
    successor = node(aws, metadata_server, clock, directory, f"{REGION}b", DiskHost(aws))
    deadlines = []

    def taken(seconds: float) -> None:
        clock.on_sleep = lambda seconds: None
        deadlines.append(write_notice(directory, clock))
        tasks.volume(held, "down")

    clock.on_sleep = taken
    assert tasks.volume(successor, "up") == 0
    assert "holder" not in job()
    assert not (directory / "lease.json").exists()
    found = row()
    assert found
    assert (found["state"], int(found["deadline"])) == ("waiting", int(deadlines[0]))
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]
    assert tasks.run(successor) == 0  # systemd starts it next: it does nothing, either


def test_a_job_that_ended_meanwhile_is_not_brought_here(
    held: tasks.Node, aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path
) -> None:
    successor = node(aws, metadata_server, clock, tmp_path / "successor", f"{REGION}b", DiskHost(aws))

    def ends(seconds: float) -> None:
        clock.on_sleep = lambda seconds: None
        job_tasks.jobs(held).mark("done")
        tasks.volume(held, "down")

    clock.on_sleep = ends
    assert tasks.volume(successor, "up") == 0
    assert "holder" not in job()
    assert row() is None
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]


def test_a_stopped_volume_up_releases_lease_and_volume(
    held: tasks.Node, aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path
) -> None:
    tasks.volume(held, "down")
    successor = node(aws, metadata_server, clock, tmp_path / "successor", f"{REGION}a", DiskHost(aws))
    assert isinstance(successor.host, DiskHost)
    assert isinstance(held.host, DiskHost)
    successor.host.formatted = held.host.formatted
    handlers: list[Any] = []
    successor.on_sigterm = handlers.append
    make = successor.host.mount

    def mount(device: str, path: Path) -> None:
        make(device, path)
        handlers[0]()

    successor.host.mount = mount  # type: ignore[method-assign]
    assert tasks.volume(successor, "up") == 0
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]
    assert successor.host.mounted(successor.data) is None
    assert "holder" not in job()
    assert row() is None


def test_what_only_a_person_can_mend_does_not_stand_by(
    held: tasks.Node, aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path
) -> None:
    tasks.volume(held, "down")
    aws.create_volume(
        AvailabilityZone=f"{REGION}a",
        Size=1,
        TagSpecifications=[
            {
                "ResourceType": "volume",
                "Tags": [
                    {"Key": "Name", "Value": "DL-datasets-checkpoints"},
                    {"Key": "gpu-spot:stack", "Value": "dev"},
                    {"Key": "gpu-spot:job", "Value": "resnet"},
                ],
            }
        ],
    )
    successor = node(aws, metadata_server, clock, tmp_path / "successor", f"{REGION}a", DiskHost(aws))
    with pytest.raises(RefusedError, match="was not created by the agent"):
        tasks.volume(successor, "up")
    assert row() is None
    assert job()["state"] == {"S": "failed"}
    assert "was not created by the agent" in job()["reason"]["S"]
    parameter = "/gpu-spot/dev/groups/resnet/finished"
    ended = boto3.client("ssm", region_name=REGION).get_parameter(Name=parameter)["Parameter"]["Value"]
    assert ended == configs.REVISION  # so the controller removes the capacity


def test_a_registry_that_fails_stops_no_move(
    aws: Any, metadata_server: MetadataServer, clock: FakeClock, tmp_path: Path
) -> None:
    boto3.client("dynamodb", region_name=REGION).delete_table(TableName="registry")
    made = node(aws, metadata_server, clock, tmp_path, f"{REGION}a", DiskHost(aws))
    assert tasks.volume(made, "up") == 0
    assert volumes(aws) == [(f"{REGION}a", "in-use", "live")]


def test_a_run_that_finds_a_notice_starts_nothing_and_gives_the_volume_back(
    held: tasks.Node, aws: Any, clock: FakeClock
) -> None:
    write_notice(held.directory, clock)
    assert tasks.run(held) == 0
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]
    assert "holder" not in job()
    assert "state" not in job()


def test_a_run_stopped_before_training_releases_the_volume(
    held: tasks.Node, aws: Any, clock: FakeClock
) -> None:
    handlers: list[Any] = []
    held.on_sigterm = handlers.append
    held.spawn = lambda *_: pytest.fail("nothing may start")

    def ran(argv: Any, stdin: str = "", environment: Any = None) -> str:
        handlers[-1]()  # in the middle of the checkout
        return configs.REVISION

    held.host.run = ran  # type: ignore[method-assign]
    assert tasks.run(held) == 0
    assert volumes(aws) == [(f"{REGION}a", "available", "live")]
