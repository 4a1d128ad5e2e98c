"""The real host, where permitted: files as devices, real commands, real signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from userdata.agent.machine import files
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost

ROOT = Path(__file__).parents[2]


def image(path: Path, mib: int) -> str:
    with path.open("wb") as file:
        file.truncate(mib * 2**20)
    return str(path)


def test_a_device_is_found_by_its_serial_number_whatever_its_name(tmp_path: Path) -> None:
    for name, serial in [("nvme0n1", "vol0root"), ("nvme2n1", "vol0abc123   \n"), ("nvme3n1", "vol0abc1234")]:
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "device" / "serial").write_text(serial)
    (tmp_path / "nvme9n1").mkdir()  # detached while we look
    host = SystemHost(sys_block=tmp_path)
    assert host.device_of("vol-0abc123") == "/dev/nvme2n1"
    assert host.device_of("vol-0none") is None


def test_a_blank_device_differs_from_one_with_a_file_system(tmp_path: Path) -> None:
    device = image(tmp_path / "disk", 8)
    assert SystemHost().filesystem(device) is None
    subprocess.run(["mkfs.ext4", "-q", device], check=True)
    assert SystemHost().filesystem(device) == "ext4"


@pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="mkfs.xfs is missing: install xfsprogs")
def test_xfs_is_made_once_and_never_over_something(tmp_path: Path) -> None:
    device = image(tmp_path / "disk", 320)
    host = SystemHost()
    host.make_filesystem(device)
    assert host.filesystem(device) == "xfs"
    with pytest.raises(AgentError, match=r"mkfs\.xfs: exit 1"):
        host.make_filesystem(device)
    used = image(tmp_path / "used", 320)
    subprocess.run(["mkfs.ext4", "-q", used], check=True)
    with pytest.raises(AgentError, match=r"mkfs\.xfs: exit 1"):
        host.make_filesystem(used)
    assert host.filesystem(used) == "ext4"


MOUNTS = """
import subprocess, sys
from pathlib import Path
from contracts.agent.config import EfsMount
from userdata.agent.machine.host import SystemHost
from userdata.agent.storage import efs

class Host(SystemHost):
    def run(self, argv, stdin="", environment=None):
        if argv[:3] == ["mount", "-t", "efs"]:  # without a network
            argv = ["mount", "-t", "tmpfs", argv[-2], argv[-1]]
        return super().run(argv, stdin, environment)

def mount(source, path):
    Path(path).mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", source, path], check=True)

host, data = Host(), Path(sys.argv[1], "with space")
below = data / "checkpoints" / "resnet"
mounts = [EfsMount("fs-1", "fsap-1", str(below))]
below.mkdir(parents=True)
print(host.mounted(data), host.mounted(below), host.mounted(data / "none"), host.mounted(data / "none" / "x"))
efs.mount_all(host, mounts)          # too early: the volume is not here yet
print(host.mounted(below))
mount("volume", data)                # and covers it
print(host.mounted(data), host.mounted(below))
below.mkdir(parents=True)            # the volume's own folder, to which the work would write
print(host.mounted(below))
efs.mount_all(host, mounts)
print(host.mounted(below), host.mounted(below / ".."))
mount("later", below)
print(host.mounted(below))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_mounted_is_what_is_seen_at_a_path_and_not_what_a_table_lists(tmp_path: Path) -> None:
    """A mount of EFS that the data volume covers does not count: checkpoints would go to the volume."""
    command = ["unshare", "--mount", sys.executable, "-c", MOUNTS, str(tmp_path)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "None None None None",
        "fs-1:/",
        "volume None",
        "None",
        "fs-1:/ None",
        "later",
    ]


def test_a_command_that_fails_says_why_in_one_line() -> None:
    with pytest.raises(AgentError, match=r"^ls: exit 2: ") as error:
        SystemHost().run(["ls", "/no/such/place"])
    assert "\n" not in str(error.value)
    with pytest.raises(AgentError, match="no-such-command: No such file"):
        SystemHost().run(["no-such-command"])
    assert SystemHost().run(["cat"], stdin="x") == "x"


def test_a_signal_to_a_process_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen(["sleep", "60"])
    SystemHost().signal(process.pid, signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
    SystemHost().signal(process.pid, signal.SIGTERM)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "notice.json"
    files.write_json(path, {"n": 1})
    with path.open() as reader:
        files.write_json(path, {"n": 22222})
        assert reader.read() == '{"n": 1}\n'
    assert files.read_json(path) == {"n": 22222}
    files.write_json(path, {"n": 1})

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        files.write_json(path, {"n": 2})
    assert files.read_json(path) == {"n": 1}
    assert [p.name for p in path.parent.iterdir()] == ["notice.json"]
    path.write_text("[1")
    assert files.read_json(path) is None
