"""Mount shared datasets read-only.

Many instances read the same snapshot, each through a volume of its own: the launch makes it in the zone where
the instance is, and AWS deletes it with the instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contracts.agent.config import Dataset
from userdata.agent.aws.clients import asking
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError, RefusedError
from userdata.agent.machine.host import Host

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

# The kernel may replay the journal: the volume is ours alone, and without it a snapshot that was taken of a
# volume in use lacks files (xfs(5), "norecovery"). Copies of one xfs share a UUID, which it would mount once.
_OPTIONS: Final = {"xfs": "ro,nouuid", "ext4": "ro"}


@dataclass(frozen=True)
class Attached:
    """A volume of this instance, and the snapshot that it was made from (empty without)."""

    volume: str
    snapshot: str


def attached(client: EC2Client, instance: str) -> dict[str, Attached]:
    """Return the instance's volumes by the device name that the launch gave them; may lag.

    Raises:
        AgentError: EC2 refused or cannot be reached.
    """
    with asking("ec2 describe_volumes"):
        pages = client.get_paginator("describe_volumes").paginate(
            Filters=[{"Name": "attachment.instance-id", "Values": [instance]}]
        )
        return {
            attachment["Device"]: Attached(volume["VolumeId"], volume.get("SnapshotId", ""))
            for page in pages
            for volume in page["Volumes"]
            for attachment in volume["Attachments"]
            if attachment["InstanceId"] == instance
        }


def mount_all(host: Host, datasets: Sequence[Dataset], find: Callable[[], Mapping[str, Attached]]) -> None:
    """Mount what is not mounted yet; ``find`` is asked only where something is missing.

    Raises:
        AgentError: a volume or its device is not there yet: try again.
        RefusedError: what is there is not the dataset, or holds no file system that can be read.
    """
    missing = [dataset for dataset in datasets if not host.mounted(Path(dataset.path))]
    volumes = find() if missing else {}
    for dataset in missing:
        device = _device(host, dataset, volumes.get(dataset.device))
        options = _OPTIONS.get(kind := host.filesystem(device) or "none")
        if options is None:
            raise RefusedError(
                f"dataset {dataset.path}: {dataset.snapshot} has file system {kind}; "
                f"allowed: {' or '.join(_OPTIONS)} on the whole volume, without partitions"
            )
        host.run(["mkdir", "--parents", dataset.path])
        host.run(["mount", "-t", kind, "-o", f"{options},noatime,nodev,nosuid", device, dataset.path])
        log.info("mounted", path=dataset.path, snapshot=dataset.snapshot, device=device, filesystem=kind)


def _device(host: Host, dataset: Dataset, found: Attached | None) -> str:
    if found is None:
        raise AgentError(f"dataset {dataset.path}: no volume at {dataset.device} yet")
    if found.snapshot != dataset.snapshot:
        origin = found.snapshot or "no snapshot"
        raise RefusedError(
            f"dataset {dataset.path}: {found.volume} at {dataset.device} is of {origin}; "
            f"allowed: of {dataset.snapshot}"
        )
    if (device := host.device_of(found.volume)) is None:
        raise AgentError(f"dataset {dataset.path}: no device of {found.volume} yet")
    return device
