"""Tenants' volumes on a double of EBS: attached, renewed, released, attached again by the next host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node import world
from tests.node.configs import FakeClock
from tests.node.world import World, WorldEbs, WorldLease
from tests.node.world_host import WorldHost
from userdata.agent.machine.errors import AgentError
from userdata.agent.storage.volume.execute import Executor, MountContext
from userdata.agent.storage.volume.growth import VolumeShape
from userdata.agent.tenants.host.volumes import DEVICES, NoDataset, TenantVolumes
from userdata.agent.tenants.model import MAX_TENANTS


class Region:
    """A world for each tenant, as each has a job's item of its own; all with one clock."""

    def __init__(self, tmp: Path) -> None:
        self.tmp, self.clock = tmp, FakeClock()
        self.worlds: dict[str, World] = {}
        self.used: list[tuple[str, str]] = []

    def world(self, tenant: str) -> World:
        return self.worlds.setdefault(tenant, World(self.clock))

    def volumes(self, instance: str, zone: str = "a") -> TenantVolumes:
        def make(tenant: str, data_gib: int, devices: tuple[str, ...]) -> Executor:
            world = self.world(tenant)
            place = MountContext(instance, zone, self.tmp / tenant, 900.0, VolumeShape(data_gib), devices)
            ebs, leases = WorldEbs(world, instance, zone, data_gib), WorldLease(world, instance)
            return Executor(place, ebs, leases, WorldHost(world, instance), NoDataset(), self.clock)

        def taken() -> set[str]:
            disks = [disk for world in self.worlds.values() for disk in world.disks.values()]
            return {str(disk.device) for disk in disks if disk.instance == instance}

        return TenantVolumes(
            make,
            lambda tenant: WorldLease(self.world(tenant), instance),
            taken,
            self.tmp / instance,
            self.clock,
        )

    def attached(self, instance: str) -> dict[str, str | None]:
        return {
            name: disk.device
            for name, world in self.worlds.items()
            for disk in world.disks.values()
            if disk.instance == instance
        }


@pytest.fixture
def region(tmp_path: Path) -> Region:
    return Region(tmp_path)


def test_each_has_a_volume_and_a_device_name_of_its_own(region: Region) -> None:
    volumes = region.volumes("i-1")
    for name in ("ada", "bo", "cy"):
        volumes.attach(name, 20)
    assert volumes.tenants() == {"ada", "bo", "cy"}
    assert sorted(str(one) for one in region.attached("i-1").values()) == list(DEVICES[:6:2])
    # Another process of this boot knows of none of it but by EC2 and the notes.
    later = region.volumes("i-1")
    for name in ("ada", "bo", "cy", "dee"):
        later.attach(name, 20)
    assert len(set(region.attached("i-1").values())) == 4
    assert len(DEVICES) > 3 * MAX_TENANTS


def test_an_attachment_that_does_not_end_is_tried_at_another_device(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach, tried = world.WorldEbs.attach, list[str]()

    def slow(ebs: WorldEbs, volume: str, instance: str, device: str) -> None:
        tried.append(device)
        with monkeypatch.context() as patch:
            patch.setattr(world, "ATTACH_SECONDS", 1e9 if device == DEVICES[0] else 1.0)
            attach(ebs, volume, instance, device)

    monkeypatch.setattr(world.WorldEbs, "attach", slow)
    region.volumes("i-1").attach("ada", 20)
    assert tried == [*DEVICES[:2]]


def test_what_a_tenant_wrote_is_there_on_the_next_host_in_another_zone(region: Region) -> None:
    first = region.volumes("i-1", "a")
    for name in ("ada", "bo"):
        first.attach(name, 20)
        WorldHost(region.world(name), "i-1").write(f"of {name}")
    for name in ("ada", "bo"):
        first.release(name)
    assert first.tenants() == frozenset()
    second = region.volumes("i-2", "b")
    for name in ("ada", "bo"):
        second.attach(name, 20)
        assert WorldHost(region.world(name), "i-2").content() == (f"of {name}",)
        assert region.world(name).holder == "i-2"


def test_leases_are_renewed_and_lost_ones_are_returned(region: Region) -> None:
    volumes = region.volumes("i-1")
    for name in ("ada", "bo"):
        volumes.attach(name, 20)
    for _ in range(10):
        region.clock.advance(40.0)
        assert volumes.renew_leases() == frozenset()
    assert WorldLease(region.world("ada"), "i-2").acquire() is None
    region.clock.advance(200.0)  # a host that slept
    assert WorldLease(region.world("ada"), "i-2").acquire() is not None
    assert volumes.renew_leases() == {"ada"}


def test_a_volume_that_grows_loses_no_lease_to_itself(region: Region) -> None:
    volumes, world = region.volumes("i-1"), region.world("ada")
    volumes.attach("ada", 20)
    region.clock.advance(40.0)

    def grow(instance: str, operation: str) -> None:
        if operation == "renew":  # read with the old token, and written after the growth has a new one
            world.before = lambda instance, operation: None
            volumes.attach("ada", 50)

    world.before = grow
    assert volumes.renew_leases() == frozenset()

    def refuse(instance: str, operation: str) -> None:
        if operation == "describe_volumes":
            raise AgentError("ec2 describe_volumes: UnauthorizedOperation")

    world.before = refuse
    with pytest.raises(AgentError, match="UnauthorizedOperation"):
        volumes.attach("ada", 100)
    world.before = lambda instance, operation: None
    for _ in range(5):  # renewed with the token that it has by now
        region.clock.advance(40.0)
        assert (volumes.renew_leases(), world.holder) == (frozenset(), "i-1")
        assert WorldLease(world, "i-2").acquire() is None
    volumes.release("ada")
    assert world.holder is None


def test_a_larger_volume_grows_where_it_is(region: Region) -> None:
    volumes = region.volumes("i-1")
    volumes.attach("ada", 20)
    before = region.attached("i-1")
    assert volumes.attach("ada", 50) == ""
    assert region.attached("i-1") == before
    [disk] = region.world("ada").disks.values()
    assert disk.size == 50


def test_a_growth_that_ebs_refuses_or_has_not_done_says_so(
    region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.node.world.MODIFY_SECONDS", 300.0)
    volumes = region.volumes("i-1")
    volumes.attach("ada", 20)
    [disk] = region.world("ada").disks.values()
    assert volumes.attach("ada", 50) == "the kernel does not show 50 GiB yet"
    region.clock.advance(300.0)
    assert (volumes.attach("ada", 50), disk.filesystem_gib) == ("", 50)
    assert "IncorrectModificationState" in volumes.attach("ada", 100)


def test_no_more_volumes_than_names(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("userdata.agent.tenants.host.volumes.DEVICES", DEVICES[:1])
    volumes = region.volumes("i-1")
    volumes.attach("ada", 20)
    with pytest.raises(AgentError, match="no device name is free; attach at most 1 volumes"):
        volumes.attach("bo", 20)
