"""Mount shared datasets read-only.

Instances read the same snapshot, each through its own volume: the launch creates it in the instance's zone,
and AWS deletes it with the instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from contracts.agent.config import Dataset
from userdata.agent.aws.clients import aws_errors
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError, RefusedError
from userdata.agent.machine.host import QUICK, SLOW, Host

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

# The kernel may replay the journal: the volume belongs to this instance, and without a replay the snapshot of
# a volume in use lacks files (xfs(5), "norecovery"). `nouuid`: copies of an xfs share a UUID, and the kernel
# mounts a UUID only once.
_OPTIONS: Final = {"xfs": "ro,nouuid", "ext4": "ro"}


@dataclass(frozen=True)
class AttachedVolume:
    """An attached volume and its source snapshot (empty: none)."""

    volume: str
    snapshot: str


def describe_attached(client: EC2Client, instance: str) -> dict[str, AttachedVolume]:
    """Return the instance's volumes by the device name of the launch; may lag.

    Raises:
        AgentError: EC2 returned an error or is unreachable.
    """
    with aws_errors("ec2 describe_volumes"):
        pages = client.get_paginator("describe_volumes").paginate(
            Filters=[{"Name": "attachment.instance-id", "Values": [instance]}]
        )
        return {
            attachment["Device"]: AttachedVolume(volume["VolumeId"], volume.get("SnapshotId", ""))
            for page in pages
            for volume in page["Volumes"]
            for attachment in volume["Attachments"]
            if attachment["InstanceId"] == instance
        }


def mount_datasets(
    host: Host, datasets: Sequence[Dataset], find: Callable[[], Mapping[str, AttachedVolume]]
) -> None:
    """Mount the datasets that are not mounted yet; ``find`` is called only if one is missing.

    Raises:
        AgentError: a volume or its device does not exist yet; retry.
        RefusedError: the volume is not the dataset's or has no supported file system.
    """
    missing = [dataset for dataset in datasets if not host.mounted(Path(dataset.path))]
    volumes = find() if missing else {}
    for dataset in missing:
        device = _device(host, dataset, volumes.get(dataset.device))
        options = _OPTIONS.get(kind := host.filesystem(device) or "none")
        if options is None:
            raise RefusedError(
                f"dataset {dataset.path}: {dataset.snapshot} has file system {kind}; use "
                f"{' or '.join(_OPTIONS)} on the whole volume, without partitions"
            )
        host.run(["mkdir", "--parents", dataset.path], QUICK)
        host.run(["mount", "-t", kind, "-o", f"{options},noatime,nodev,nosuid", device, dataset.path], SLOW)
        log.info("mounted", path=dataset.path, snapshot=dataset.snapshot, device=device, filesystem=kind)


def _device(host: Host, dataset: Dataset, volume: AttachedVolume | None) -> str:
    if volume is None:
        raise AgentError(f"dataset {dataset.path}: no volume at {dataset.device} yet")
    if volume.snapshot != dataset.snapshot:
        origin = volume.snapshot or "no snapshot"
        raise RefusedError(
            f"dataset {dataset.path}: {volume.volume} at {dataset.device} was created from "
            f"{origin}, not from {dataset.snapshot}; replace the volume"
        )
    if (device := host.device_of(volume.volume)) is None:
        raise AgentError(f"dataset {dataset.path}: no block device for {volume.volume} yet")
    return device
