"""The real host where it is permitted: files as devices, real commands, real signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from userdata.agent.machine import files
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost


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


def test_a_blank_device_is_told_from_one_with_a_file_system(tmp_path: Path) -> None:
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


def test_the_visible_mount_is_the_last_one(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/a /dltraining xfs rw 0 0\n/dev/b /with\\040space xfs rw 0 0\n/dev/c /dltraining xfs rw 0 0\n"
    )
    host = SystemHost(mounts=table)
    assert host.mounted(Path("/dltraining")) == "/dev/c"
    assert host.mounted(Path("/with space")) == "/dev/b"
    assert host.mounted(Path("/else")) is None


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
