"""Shared datasets: only the configured snapshot's volume is mounted, read-only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from contracts.agent.config import Dataset
from contracts.codec import ContractError
from tests import models
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.jobs import IMAGE
from tests.node.metadata import MetadataServer
from tests.node.units import CommandHost
from tests.waiting import run_process
from userdata.agent import cli
from userdata.agent.aws.imds import Metadata
from userdata.agent.machine.errors import AgentError, RefusedError
from userdata.agent.storage.datasets import AttachedVolume, describe_attached, mount_datasets
from userdata.agent.tasks.diagnosis import diagnose

DATASET = Dataset("snap-0123456789abcdef0", "/dev/sdk", "/data/imagenet")
HERE = {
    "/dev/sdk": AttachedVolume("vol-1", DATASET.snapshot),
    "/dev/sda1": AttachedVolume("vol-root", "snap-ami"),
}


class ReaderHost(CommandHost):
    """One volume with a file system; what is mounted is a dict."""

    def __init__(self, filesystem: str | None = "xfs") -> None:
        super().__init__()
        self.kind = filesystem
        self.mounts: dict[str, str] = {}

    def device_of(self, volume: str) -> str | None:
        return {"vol-1": "/dev/nvme4n1"}.get(volume)

    def filesystem(self, device: str) -> str | None:
        return self.kind

    def mounted(self, path: Path) -> str | None:
        return self.mounts.get(str(path))


@pytest.mark.parametrize(("kind", "options"), [("xfs", "ro,nouuid,"), ("ext4", "ro,")], ids=["xfs", "ext4"])
def test_a_dataset_is_mounted_read_only(kind: str, options: str) -> None:
    host = ReaderHost(kind)
    mount_datasets(host, [DATASET], lambda: HERE)
    assert host.ran[-1] == [
        "mount", "-t", kind, "-o", f"{options}noatime,nodev,nosuid", "/dev/nvme4n1", "/data/imagenet"
    ]  # fmt: skip


def test_what_is_mounted_asks_aws_nothing() -> None:
    host = ReaderHost()
    host.mounts = {"/data/imagenet": "/dev/nvme4n1"}
    mount_datasets(host, [DATASET], lambda: pytest.fail("asked"))
    assert host.ran == []


@pytest.mark.parametrize(
    ("kind", "found", "error", "says"),
    [
        ("xfs", {}, AgentError, "no volume at /dev/sdk yet"),
        (
            "xfs",
            {"/dev/sdk": AttachedVolume("vol-2", DATASET.snapshot)},
            AgentError,
            "no block device for vol-2 yet",
        ),
        (
            "xfs",
            {"/dev/sdk": AttachedVolume("vol-1", "snap-2")},
            RefusedError,
            "vol-1 at /dev/sdk was created from snap-2, not",
        ),
        (
            "xfs",
            {"/dev/sdk": AttachedVolume("vol-1", "")},
            RefusedError,
            "created from no snapshot, not from ",
        ),
        (None, HERE, RefusedError, "has file system none; use xfs or ext4 on the whole volume"),
        ("btrfs", HERE, RefusedError, "has file system btrfs; use "),
    ],
)
def test_what_is_not_the_dataset_is_not_mounted(
    kind: str | None, found: dict[str, AttachedVolume], error: type[AgentError], says: str
) -> None:
    host = ReaderHost(kind)
    with pytest.raises(AgentError, match=r"^dataset /data/imagenet: ") as caught:
        mount_datasets(host, [DATASET], lambda: found)
    assert type(caught.value) is error
    assert says in str(caught.value)
    assert host.ran == []


@pytest.mark.long
def test_volumes_are_distinguished_by_their_instance() -> None:
    with models.moto():
        client = boto3.client("ec2", region_name="us-west-2")
        volume = client.create_volume(AvailabilityZone="us-west-2a", Size=1)["VolumeId"]
        snapshot = client.create_snapshot(VolumeId=volume)["SnapshotId"]
        disk = {"DeviceName": "/dev/sdk", "Ebs": {"SnapshotId": snapshot, "DeleteOnTermination": True}}
        started = client.run_instances(
            ImageId=IMAGE, MinCount=2, MaxCount=2, BlockDeviceMappings=[disk]  # type: ignore[list-item]
        )  # fmt: skip
        mine, other = (describe_attached(client, one["InstanceId"]) for one in started["Instances"])
        assert mine["/dev/sdk"].snapshot == other["/dev/sdk"].snapshot == snapshot
        assert mine["/dev/sdk"].volume != other["/dev/sdk"].volume
        assert describe_attached(client, "i-0none") == {}


def dataset(path: str, device: str = "/dev/sdk") -> dict[str, str]:
    return {"snapshot": DATASET.snapshot, "device": device, "path": path}


FILES = {"fileSystem": "fs-1", "accessPoint": "fsap-1", "path": "/data/shared/files"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (configs.service(datasets=[dataset("/etc/imagenet")]), "datasets[0].path must be text that matches"),
        (configs.service(datasets=[dataset("/data/../etc")]), "datasets[0].path must be text that matches"),
        (configs.service(datasets=[dataset("/data/a", "/dev/sdf")]), "datasets[0].device must be '/dev/sdk'"),
        (configs.service(datasets=[dataset("/data/a"), dataset("/data/a/b")]), "/data/a/b overlaps /data/a"),
        (configs.service(datasets=[dataset("/data/shared")], efs=[FILES]), "overlaps /data/shared/files"),
        # The copy from S3 fills the whole folder.
        (configs.training(datasets=[dataset("/dltraining/datasets/a")]), "overlaps /dltraining/datasets"),
    ],
)
def test_places_that_collide_or_belong_to_others_are_refused(body: dict[str, Any], says: str) -> None:
    with pytest.raises(ContractError) as caught:
        configs.load(body)
    assert says in str(caught.value)


def test_neighbours_are_allowed() -> None:
    places = [
        dataset("/data/a"),
        dataset("/data/ab", "/dev/sdl"),
        dataset("/dltraining/datasets/c", "/dev/sdm"),
    ]
    assert len(configs.load(configs.service(datasets=places)).datasets) == 3
    volume = {"sizeGib": 100}
    assert configs.load(configs.training(datasets=places, volume=volume)).datasets


def test_doctor_names_a_dataset_that_is_not_there_or_not_the_dataset(
    clock: FakeClock, metadata_server: MetadataServer, tmp_path: Path
) -> None:
    body = configs.service(datasets=[dataset("/data/a"), dataset("/data/b", "/dev/sdl")], nvidia=False)
    config = configs.load(body)
    host = ReaderHost()
    [_, b] = config.datasets
    object.__setattr__(b, "path", str(tmp_path))  # a place that is there, and writable
    host.mounts = {str(tmp_path): "/dev/nvme4n1"}
    found = list(diagnose(config, Metadata(clock, metadata_server.url), host, None))
    texts = {f.check: f.text for f in found if f.level == "failure"}
    assert texts["dataset /data/a"] == "not mounted; see `journalctl --unit gpu-spot-work`"
    assert "is writable" in texts[f"dataset {tmp_path}"]
    # Another maker's accelerators are none that NVML lost.
    assert "gpus" not in {f.check for f in found}


# In a mount namespace of its own, so that nothing of it is left here.
REAL = """
import json, os, subprocess, sys
from pathlib import Path
from contracts.agent.config import Config, Dataset
from userdata.agent.storage.datasets import AttachedVolume, mount_datasets
from userdata.agent.tasks.diagnosis import _dataset
from userdata.agent.machine.host import SystemHost

class FileHost(SystemHost):
    def device_of(self, volume):
        return volume  # a loop device

here, kind = Path(sys.argv[1]), sys.argv[2]
disk, copy = here / "disk", here / "copy"

def run(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

with disk.open("wb") as file:
    file.truncate(320 * 2**20)
run(f"mkfs.{kind}", "-q", disk)
host = FileHost()
writer = here / "writer"
host.mount(str(disk), writer)
(writer / "sample").write_text("data")
os.sync()
# A snapshot of a volume in use: the file stands in the journal and nowhere else.
run("cp", "--sparse=always", disk, copy)
loop = run("losetup", "--find", "--show", copy)
first = Dataset("snap-00000000", "/dev/sdk", "/data/first")
object.__setattr__(first, "path", str(here / "first"))
second = Dataset("snap-00000000", "/dev/sdl", "/data/second")
object.__setattr__(second, "path", str(writer / "datasets" / "second"))
found = {device: AttachedVolume(loop, first.snapshot) for device in ("/dev/sdk", "/dev/sdl")}
seen = {}
try:
    mount_datasets(host, [first, second], lambda: found)
    seen["read"] = (Path(second.path) / "sample").read_text()
    try:
        (Path(first.path) / "more").write_text("x")
    except OSError as error:
        seen["refused"] = error.strerror
    seen["doctor"] = [_dataset(None, host, one)[0] for one in (first, second)]
    host.unmount(writer)  # with the dataset below it
    host.unmount(Path(first.path))
    seen["left"] = host.mounted(writer) or host.mounted(Path(second.path))
finally:
    run("losetup", "--detach", loop)
print(json.dumps(seen))
"""


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_snapshot_of_a_volume_in_use_is_read_whole_and_not_written(kind: str, tmp_path: Path) -> None:
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", REAL]
    probe = subprocess.run([*command[:4], "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True)
    if probe.returncode:
        pytest.skip("no mounts permitted here: the checks above ran against the double only")
    done = run_process([*command, tmp_path, kind])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "read": "data",
        "refused": "Read-only file system",
        "doctor": ["ok", "ok"],
        "left": None,
    }


def test_units_that_mount_have_no_mount_namespace_of_their_own() -> None:
    """In a mount namespace (systemd.exec, "ReadOnlyPaths=") their mounts would be invisible to others."""
    private = ("Protect", "Private", "ReadOnly", "ReadWrite", "Inaccessible", "TemporaryFileSystem", "Bind")
    units = Path(cli.__file__).parent / "units"
    for name in ("volume", "efs", "run", "work"):
        lines = (units / f"gpu-spot-{name}.service").read_text().splitlines()
        assert [line for line in lines if line.startswith(private)] == [], name
