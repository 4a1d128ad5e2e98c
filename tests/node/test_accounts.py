"""The user that work runs as, made for real where root may, and a firewall in a network of its own."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.node.units import CommandHost
from tests.waiting import run_process
from userdata.agent.machine import accounts
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.storage import scratch

ROOT = Path(__file__).parents[2]
ONLY_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root may make users and firewall rules")
USER_ID = 54_321

# Whoever asks from that user: refused; from another: answered; elsewhere: answered.
ASKS = f"""
import encodings.idna, os, socket, subprocess, time  # all that is imported, while it can be
from userdata.agent.machine import accounts, host

address = {{4: "169.254.169.254", 6: "fd00:ec2::254"}}
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
for each in (*address.values(), "169.254.169.123"):
    at_once = ["nodad"] if ":" in each else []  # else it is tentative for a moment
    subprocess.run(["ip", "address", "add", each, "dev", "lo", *at_once], check=True)
    while subprocess.run(["ip", "route", "get", each], capture_output=True).returncode:
        time.sleep(0.01)  # the kernel adds its route a moment later
listening = [socket.create_server((each, 80), family=family, backlog=20) for each, family in [
    (address[4], socket.AF_INET), ("169.254.169.123", socket.AF_INET), (address[6], socket.AF_INET6)]]

def ask(user, to):
    child = os.fork()
    if not child:
        os.setuid(user)
        try:
            socket.create_connection((to, 80), 5).close()
        except ConnectionRefusedError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

assert [ask({USER_ID}, each) for each in address.values()] == [0, 0]
for _ in range(2):
    accounts.block_metadata_access(host.SystemHost(), "{USER_ID}")
    asked = [(ask({USER_ID}, each), ask({USER_ID + 1}, each), ask(0, each)) for each in address.values()]
    print(asked, ask({USER_ID}, "169.254.169.123"))
"""


def in_a_network_of_its_own(tools: Path | None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if tools:
        environment["PATH"] = str(tools)
    command = ["/usr/bin/unshare", "--net", sys.executable, "-c", ASKS]
    done = run_process(command, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@ONLY_ROOT
@pytest.mark.parametrize("firewall", ["nft", "iptables"])
def test_the_user_cannot_reach_the_metadata_and_everybody_else_can(
    firewall: str, tmp_path: Path, require_program: Callable[..., str]
) -> None:
    """The time service, at a neighbouring address, stays reachable."""
    require_program("nft")
    require_program("iptables")
    for program in ("ip", firewall, *(["ip6tables"] if firewall == "iptables" else [])):
        (tmp_path / program).symlink_to(require_program(program))
    output = in_a_network_of_its_own(tmp_path)
    assert output.splitlines() == ["[(1, 0, 0), (1, 0, 0)] 0"] * 2


def test_without_any_firewall_nothing_is_started() -> None:
    missing = {name: AgentError(f"{name}: No such file or directory") for name in ("nft", "iptables")}
    with pytest.raises(AgentError, match=r"block user 990 .* nft: No such .* iptables: No such") as error:
        accounts.block_metadata_access(CommandHost(**missing), "990")
    assert "\n" not in str(error.value)


def test_a_user_that_is_there_keeps_its_home_and_gets_an_empty_folder_for_temporary_files() -> None:
    host = CommandHost(id="990\n", getent=AgentError("getent: exit 2: no output"))
    assert accounts.create_user(host, "gpu-spot-job") == "990"
    assert {argv[0] for argv in host.ran} == {"id", "getent", "rm", "install"}
    removed = [argv[-1] for argv in host.ran if argv[0] == "rm"]
    assert removed == ["/var/lib/gpu-spot/tmp"]


@ONLY_ROOT
def test_the_user_is_made_once_without_a_way_to_more_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"gpu-spot-{os.getpid()}"
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    monkeypatch.setattr(accounts, "JOB_HOME", home)
    monkeypatch.setattr(accounts, "JOB_TMP", temporary)
    try:
        number = accounts.create_user(SystemHost(), user)
        (home / "cache").touch()
        (temporary / "left").touch()
        assert accounts.create_user(SystemHost(), user) == number
        account = pwd.getpwnam(user)
        assert (account.pw_uid, account.pw_dir, account.pw_shell) == (
            int(number),
            str(home),
            "/usr/sbin/nologin",
        )
        groups = run_process(["id", "--name", "--groups", user], check=True)
        assert set(groups.stdout.split()) <= {user, "video", "render"}
        assert (home.stat().st_uid, home.stat().st_mode & 0o777) == (int(number), 0o700)
        assert list(home.iterdir()) == [home / "cache"]
        assert list(temporary.iterdir()) == []
    finally:
        subprocess.run(["userdel", user], check=False)


EBS = "Amazon Elastic Block Store"


MODEL = "Amazon EC2 NVMe Instance Storage"


class Disks(CommandHost):
    """Devices with what is on them, and mounts."""

    def __init__(self, **kinds: str | None) -> None:
        super().__init__()
        self.kinds = {f"/dev/{name}": kind for name, kind in kinds.items()}
        self.mounts: dict[str, str] = {}
        self.formatted: list[str] = []

    def filesystem(self, device: str) -> str | None:
        return self.kinds[device]

    def make_filesystem(self, device: str) -> None:
        assert self.kinds[device] is None
        self.formatted.append(device)

    def mounted(self, path: Path) -> str | None:
        return self.mounts.get(str(path))

    def mount(self, device: str, path: Path) -> None:
        self.mounts[str(path)] = device


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
