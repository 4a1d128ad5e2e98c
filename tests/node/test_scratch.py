from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.node.units import UnitHost
from userdata.agent.machine.errors import AgentError
from userdata.agent.storage import scratch

EBS = "Amazon Elastic Block Store"


MODEL = "Amazon EC2 NVMe Instance Storage"


class Disks(UnitHost):
    """Devices with what is on them, and mounts."""

    def __init__(self, **kinds: str | None) -> None:
        super().__init__()
        self.kinds = {f"/dev/{name}": kind for name, kind in kinds.items()}
        self.mounts: dict[str, str] = {}
        self.formatted: list[str] = []
        self.ran: list[list[str]] = []

    def filesystem(self, device: str) -> str | None:
        return self.kinds[device]

    def make_filesystem(self, device: str) -> None:
        assert self.kinds[device] is None
        self.formatted.append(device)

    def mounted(self, path: Path) -> str | None:
        return self.mounts.get(str(path))

    def mount(self, device: str, path: Path) -> None:
        self.mounts[str(path)] = device

    def run(self, argv: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        self.ran.append(list(argv))
        return ""


class Machine:
    def __init__(self, tmp: Path) -> None:
        self.block, self.place, self.ami = tmp / "block", tmp / "scratch", tmp / "dlami"

    def device(self, name: str, model: str, size: int = 100, *inside: str) -> None:
        folder = self.block / name
        for one in ("device", "holders", *inside):
            (folder / one).mkdir(parents=True)
        (folder / "device" / "model").write_text(f"{model:<40}\n")
        (folder / "size").write_text(f"{size}\n")

    def prepare(self, host: Disks) -> None:
        host._sys_block = self.block
        scratch.prepare_scratch(host, "job", self.place, self.ami)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_largest_instance_store_is_formatted_once_and_mounted(machine: Machine) -> None:
    machine.device("nvme0n1", EBS, 10_000, "nvme0n1p1")
    machine.device("nvme1n1", MODEL, 100)
    machine.device("nvme2n1", MODEL, 200)
    host = Disks(nvme0n1=None, nvme1n1=None, nvme2n1=None)
    machine.prepare(host)
    assert host.formatted == ["/dev/nvme2n1"]
    assert host.mounts == {str(machine.place): "/dev/nvme2n1"}
    machine.prepare(host)  # another start
    assert host.formatted == ["/dev/nvme2n1"]
    assert host.ran[-1] == ["install", "--directory", "--owner=job", str(machine.place)]


def test_a_reboot_finds_what_was_there(machine: Machine) -> None:
    machine.device("nvme1n1", MODEL)
    host = Disks(nvme1n1="xfs")
    machine.prepare(host)
    assert host.formatted == []
    assert host.mounts == {str(machine.place): "/dev/nvme1n1"}


@pytest.mark.parametrize("model", [EBS, "", "Samsung"])
def test_a_volume_is_never_touched_blank_or_not(machine: Machine, model: str) -> None:
    machine.device("nvme1n1", model)
    host = Disks(nvme1n1=None)
    machine.prepare(host)
    assert (host.formatted, host.mounts) == ([], {})


@pytest.mark.parametrize("inside", ["holders/md0", "nvme1n1p1"])
def test_a_disk_in_use_is_left_alone(machine: Machine, inside: str) -> None:
    machine.device("nvme1n1", MODEL, 100, inside)
    host = Disks(nvme1n1=None)
    machine.prepare(host)
    assert (host.formatted, host.mounts) == ([], {})


def test_one_that_is_no_use_gives_way_to_the_next_and_to_the_root_disk(machine: Machine) -> None:
    class Broken(Disks):
        def make_filesystem(self, device: str) -> None:
            raise AgentError("mkfs.xfs: exit 1: I/O error")

    machine.device("nvme1n1", MODEL, 300)
    machine.device("nvme2n1", MODEL, 200)
    machine.device("nvme3n1", MODEL, 100)
    host = Broken(nvme1n1="ext4", nvme2n1=None, nvme3n1="xfs")
    machine.prepare(host)
    assert host.mounts == {str(machine.place): "/dev/nvme3n1"}
    host = Broken(nvme1n1="ext4", nvme2n1=None, nvme3n1="LVM2_member")
    machine.prepare(host)
    assert host.mounts == {}


def test_what_the_image_has_mounted_is_used(machine: Machine) -> None:
    machine.device("nvme1n1", MODEL)
    host = Disks(nvme1n1=None)
    host.mounts[str(machine.ami)] = "/dev/mapper/vg-lv"
    machine.prepare(host)
    assert ["mount", "--bind", f"{machine.ami}/gpu-spot", str(machine.place)] in host.ran
    assert host.formatted == []
