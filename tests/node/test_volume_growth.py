"""The volume follows the stack file's size and throughput, upwards, without blocking work."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.agent.config import Volume
from tests.node.clocks import FakeClock
from tests.node.test_volume_aws import Recorder
from tests.node.test_volume_plan import at_home
from tests.node.world import Disk, World, WorldEbs, WorldLease
from tests.node.world_host import WorldFiller, WorldHost
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.storage.volume import model
from userdata.agent.storage.volume.ebs import AwsEbs
from userdata.agent.storage.volume.execute import Executor, MountContext
from userdata.agent.storage.volume.growth import UNCHANGED, VolumeShape, required_change
from userdata.agent.storage.volume.model import CreateVolume
from userdata.agent.storage.volume.plan import plan


@pytest.fixture
def world(clock: FakeClock) -> World:
    made = World(clock)
    clock.on_sleep = lambda seconds: made.settle()
    return made


def boot(world: World, size: int, throughput: int = 125, zone: str = "a") -> Disk:
    """A whole life of an instance whose stack file says that size."""
    host, ebs = WorldHost(world, "i-x"), WorldEbs(world, "i-x", zone, size)
    place = MountContext("i-x", zone, Path("/dltraining"), 900.0, VolumeShape(size, throughput))
    filler = WorldFiller(host)
    executor = Executor(place, ebs, WorldLease(world, "i-x"), host, filler, world.clock)
    held = executor.up()
    executor.down(held)
    world.clock.sleep(60)
    return world.disks[held.volume]


def asked(world: World) -> int:
    return sum(operation == "modify_volume" for _, operation in world.calls)


def test_what_is_asked_for() -> None:
    home = SimpleNamespace(size_gib=100, throughput_mib=125)
    for wanted, found in {
        VolumeShape(100, 125): UNCHANGED,
        VolumeShape(200, 125): VolumeShape(200, 0),
        VolumeShape(50, 125): UNCHANGED,
        VolumeShape(100, 500): VolumeShape(0, 500),
        VolumeShape(300, 250): VolumeShape(300, 250),
        UNCHANGED: UNCHANGED,
    }.items():
        assert required_change(home, wanted) == found  # type: ignore[arg-type]
    of_another_type = SimpleNamespace(size_gib=100, throughput_mib=0)
    assert required_change(of_another_type, VolumeShape(100, 500)) == UNCHANGED  # type: ignore[arg-type]


def test_it_is_seen_to_once_mounted_and_before_the_dataset_is_copied() -> None:
    seen = at_home(mounted="vol-home", grown=False)
    assert plan(seen) == model.Grow()
    assert plan(at_home(mounted="vol-home")) == model.Fill()


def test_volume_and_file_system_grow_and_nothing_is_asked_twice(world: World) -> None:
    assert boot(world, 100).filesystem_gib == 100
    assert asked(world) == 0
    grown = boot(world, 250, 300)
    assert (grown.size, grown.throughput, grown.filesystem_gib) == (250, 300, 250)
    boot(world, 250, 300)
    assert asked(world) == 1


def test_a_change_within_the_cooldown_stops_nothing_and_is_requested_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    boot(world, 100)
    boot(world, 200)
    assert boot(world, 300).size == 200
    assert "volume not modified until the next mount" in caplog.messages
    world.clock.sleep(4000)
    again = boot(world, 300)
    assert (again.size, again.filesystem_gib) == (300, 300)


def test_a_volume_never_shrinks_and_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    boot(world, 200)
    assert boot(world, 100).size == 200
    assert asked(world) == 0
    assert "volume not shrunk: EBS volumes only grow" in caplog.messages


def test_a_move_makes_the_copy_as_large_as_the_stack_says_and_never_smaller(world: World) -> None:
    boot(world, 100)
    moved = boot(world, 150, zone="b")
    assert (moved.size, moved.filesystem_gib, moved.zone) == (150, 150, "b")
    assert boot(world, 120, zone="a").size == 150
    assert asked(world) == 0


def test_what_ec2_is_asked() -> None:
    client: Any = Recorder({}, {}, {"VolumeId": "vol-2"})
    adapter = AwsEbs(client, "dev", "g", "j", Volume(size_gib=10))
    adapter.modify_volume("vol-1", 20, 0)
    adapter.modify_volume("vol-1", 0, 500)
    adapter.create_volume("a", 1, CreateVolume("snap-1", "vol-1", 30))
    assert client.asked[:2] == [
        ("modify_volume", {"VolumeId": "vol-1", "Size": 20}),
        ("modify_volume", {"VolumeId": "vol-1", "Throughput": 500}),
    ]
    assert client.asked[2][1]["Size"] == 30


def _can_mount() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, ("mkfs.xfs", "mount", "losetup", "xfs_growfs")))


@pytest.mark.skipif(not _can_mount(), reason="a real file system needs root, xfsprogs and mount")
def test_a_real_file_system_fills_its_larger_device(tmp_path: Path) -> None:
    image, place, host = tmp_path / "image", tmp_path / "place", SystemHost()
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(320 * 2**20)
    host.run(["mkfs.xfs", "-q", str(image)])
    try:
        device = host.run(["losetup", "--find", "--show", str(image)]).strip()
    except AgentError as error:
        pytest.skip(f"no loop devices here: {error}")
    try:
        host.run(["mount", device, str(place)])
        before = os.statvfs(place).f_blocks
        host.grow(device, place)
        assert os.statvfs(place).f_blocks == before
        with image.open("r+b") as file:
            file.truncate(480 * 2**20)
        host.run(["losetup", "--set-capacity", device])
        assert host.capacity(device) == 480 * 2**20
        host.grow(device, place)
        assert os.statvfs(place).f_blocks > before * 1.4
    finally:
        host.unmount(place)
        host.run(["losetup", "--detach", device])
