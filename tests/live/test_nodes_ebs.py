"""Simulated EBS: delayed states, zone checks, persistent content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.disks.ebs import Disks
from rehearsal.machines.journal import Journal
from rehearsal.machines.times import Times
from tests.live.world import Running

TIMES = Times(create=10, attach=6, detach=5, dying=60, snapshot=20, snapshot_mib=1024)
A, B = "us-west-2a", "us-west-2b"


class World:
    def __init__(self, running: Running, disks: Disks) -> None:
        self.ec2, self.disks, self.cloud = running.clients("ec2"), disks, running.cloud

    def after(self, seconds: float) -> None:
        self.disks.settle(self.disks.now + seconds)

    def create(self, zone: str, **more: Any) -> str:
        size = {} if "SnapshotId" in more else {"Size": 1}
        return str(self.ec2.create_volume(AvailabilityZone=zone, **size, **more)["VolumeId"])

    def state(self, volume: str) -> tuple[str, list[str]]:
        [found] = self.ec2.describe_volumes(VolumeIds=[volume])["Volumes"]
        return found["State"], [attachment["State"] for attachment in found["Attachments"]]

    def snapshot(self, snapshot: str) -> tuple[str, str]:
        [found] = self.ec2.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"]
        return found["State"], found["Progress"]

    def launch(self, zone: str) -> str:
        return self.cloud.launch("inference", GroupRole.PRIMARY, "g6.xlarge", zone, PurchaseOption.SPOT)

    def attach(self, volume: str, instance: str) -> None:
        self.ec2.attach_volume(VolumeId=volume, InstanceId=instance, Device="/dev/sdf")

    def available(self) -> str:
        """Return a volume that has been created."""
        volume = self.create(A)
        self.after(10)
        return volume

    def attaching(self, seconds: float) -> tuple[str, str]:
        """Return an instance, and a volume that has been attaching to it for so long."""
        instance, volume = self.launch(A), self.available()
        self.attach(volume, instance)
        self.after(seconds)
        return instance, volume


@pytest.fixture
def world(running: Running, tmp_path: Path) -> Iterator[World]:
    disks = Disks(tmp_path, TIMES, Journal())
    with disks.applied():
        made = World(running, disks)
        yield made
        for left in made.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]:
            made.ec2.delete_snapshot(SnapshotId=left["SnapshotId"])


def refused(code: str) -> Any:
    return pytest.raises(ClientError, match=code)


def test_creating_attaching_and_detaching_take_their_time(world: World) -> None:
    instance, volume = world.launch(A), world.create(A)
    assert world.state(volume) == ("creating", [])
    with refused("IncorrectState"):
        world.attach(volume, instance)
    with refused("IncorrectState"):
        world.ec2.delete_volume(VolumeId=volume)
    world.after(10)
    assert world.state(volume) == ("available", [])
    world.attach(volume, instance)
    assert world.state(volume) == ("in-use", ["attaching"])
    assert world.disks.holder(volume) is None
    world.after(6)
    assert world.state(volume) == ("in-use", ["attached"])
    assert world.disks.holder(volume) == instance
    with refused("VolumeInUse"):
        world.ec2.delete_volume(VolumeId=volume)
    world.ec2.detach_volume(VolumeId=volume, InstanceId=instance)
    assert world.state(volume) == ("in-use", ["detaching"])
    with refused("IncorrectState"):
        world.ec2.detach_volume(VolumeId=volume, InstanceId=instance)
    world.after(5)
    assert world.state(volume) == ("available", [])


def test_a_volume_attaches_in_its_own_zone_and_once(world: World) -> None:
    here, also_here, there, volume = world.launch(A), world.launch(A), world.launch(B), world.available()
    with refused("InvalidVolume.ZoneMismatch"):
        world.attach(volume, there)
    world.attach(volume, here)
    with refused("VolumeInUse"):
        world.attach(volume, also_here)


def test_a_dying_instance_keeps_its_volume_for_a_while(world: World) -> None:
    instance, volume = world.attaching(6)
    world.cloud.kill([instance])
    assert world.state(volume) == ("in-use", ["detaching"])
    world.after(59)
    assert world.state(volume) == ("in-use", ["detaching"])
    world.after(1)
    assert world.state(volume) == ("available", [])


def test_an_instance_that_ends_while_a_volume_comes_never_has_it(world: World) -> None:
    instance, volume = world.attaching(1)
    world.cloud.kill([instance])
    world.after(6)  # it would have been attached by now
    assert world.disks.holder(volume) is None
    assert world.state(volume) == ("in-use", ["detaching"])
    world.after(54)
    assert world.state(volume) == ("available", [])


def test_no_volume_attaches_to_an_instance_that_has_ended(world: World) -> None:
    instance, volume = world.launch(A), world.available()
    world.cloud.kill([instance])
    with refused("IncorrectState"):
        world.attach(volume, instance)
    assert world.state(volume) == ("available", [])


def test_a_snapshot_holds_the_content_at_its_start(world: World) -> None:
    volume = world.available()
    world.disks.format(volume)
    (world.disks.folder(volume) / "weights").write_text("before")
    world.disks.wrote(volume, 1024)
    snapshot = world.ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    (world.disks.folder(volume) / "weights").write_text("after")
    assert world.snapshot(snapshot) == ("pending", "0%")
    with refused("IncorrectState"):
        world.create(B, SnapshotId=snapshot)
    world.after(11)  # of 20 s and one for the GiB that was written
    assert world.snapshot(snapshot) == ("pending", "50%")
    world.after(10)
    assert world.snapshot(snapshot) == ("completed", "100%")
    copy = world.create(B, SnapshotId=snapshot)
    assert (world.disks.folder(copy) / "weights").read_text() == "before"
    world.ec2.delete_snapshot(SnapshotId=snapshot)
    world.ec2.delete_volume(VolumeId=volume)
    assert not world.disks.folder(volume).exists()
    assert world.disks.folder(copy).exists()


def test_the_duration_of_a_snapshot_depends_on_the_changed_blocks(world: World) -> None:
    volume = world.available()
    world.disks.format(volume)
    world.disks.wrote(volume, 1024)
    first = world.ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    world.after(21)
    assert world.snapshot(first)[0] == "completed"
    copy = world.create(B, SnapshotId=first)
    world.after(10)
    second = world.ec2.create_snapshot(VolumeId=copy)["SnapshotId"]
    world.after(20)
    assert world.snapshot(second)[0] == "completed"  # nothing was written
    for snapshot in (first, second):
        world.ec2.delete_snapshot(SnapshotId=snapshot)
    third = world.ec2.create_snapshot(VolumeId=copy)["SnapshotId"]
    world.after(20)
    assert world.snapshot(third)[0] == "pending"  # all of it again
    world.after(1)
    assert world.snapshot(third)[0] == "completed"


def test_a_snapshot_of_a_mounted_volume_blocks_no_node(world: World) -> None:
    volume = world.available()
    world.disks.mounted.add(volume)
    world.ec2.create_snapshot(VolumeId=volume)
    assert world.disks.copying_until == 0
    world.disks.mounted.discard(volume)
    world.ec2.create_snapshot(VolumeId=volume)
    assert world.disks.copying_until == world.disks.now + 20


def test_only_a_copy_is_slow_at_its_first_read(world: World) -> None:
    volume = world.available()
    snapshot = world.ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    world.after(20)
    lazy = world.create(B, SnapshotId=snapshot)
    fast = world.create(B, SnapshotId=snapshot, VolumeInitializationRate=300)
    assert [world.disks.first_read(one, 600) for one in (volume, lazy, fast)] == [0, 6, 2]


def test_the_same_client_token_creates_once(world: World) -> None:
    assert world.create(A, ClientToken="x") == world.create(A, ClientToken="x")
    assert world.create(A, ClientToken="y") != world.create(A, ClientToken="z")


def test_data_loss_is_an_error(world: World) -> None:
    instance, volume = world.attaching(6)
    world.disks.format(volume)
    with pytest.raises(LocalCloudError, match="already has a file system"):
        world.disks.format(volume)
    world.disks.mounted.add(volume)
    with pytest.raises(LocalCloudError, match="detached while it is mounted"):
        world.ec2.detach_volume(VolumeId=volume, InstanceId=instance)


def test_root_volumes_and_the_snapshots_of_images_are_left_to_moto(world: World) -> None:
    instance = world.launch(A)
    filters = [{"Name": "attachment.instance-id", "Values": [instance]}]
    [root] = world.ec2.describe_volumes(Filters=filters)["Volumes"]
    assert world.state(root["VolumeId"]) == ("in-use", ["attached"])
    world.cloud.kill([instance])
    with refused("InvalidVolume.NotFound"):
        world.state(root["VolumeId"])
    assert world.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"] == []
