"""EBS: how a job's volume follows it."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import Falsified, Lab

_EXECUTE: Final = "userdata/agent/storage/volume/execute.py"
_DEVICE: Final = "/dev/sdf"


def _attach(lab: Lab, volume: str, instance: str) -> None:
    lab.clients("ec2").attach_volume(VolumeId=volume, InstanceId=instance, Device=_DEVICE)


def _attached(lab: Lab) -> tuple[str, str]:
    zone = next(iter(lab.subnets))
    instance, volume = lab.instance(zone), lab.volume(zone)
    _attach(lab, volume, instance)
    lab.until(lambda: lab.volume_state(volume) == "in-use", "the volume is attached")
    return instance, volume


@assumes("AttachVolume", _EXECUTE, "it is attached", instances=1, unplayable="moto attaches across zones")
def volume_of_another_zone(lab: Lab) -> str:
    """A volume of another zone cannot be attached."""
    here, there, *_ = lab.subnets
    instance, volume = lab.instance(here), lab.volume(there)
    return lab.refused(lambda: _attach(lab, volume, instance), "ZoneMismatch", "same availability zone")


@assumes(
    "AttachVolume", _EXECUTE, "it is attached twice", instances=2, unplayable="moto attaches a volume twice"
)
def one_holder(lab: Lab) -> str:
    """A volume that is attached cannot be attached to another instance."""
    _, volume = _attached(lab)
    other = lab.instance(next(iter(lab.subnets)))
    return lab.refused(lambda: _attach(lab, volume, other), "VolumeInUse", "already attached", "in-use")


@assumes("DeleteVolume", _EXECUTE, "it is deleted", instances=1)
def attached_is_not_deleted(lab: Lab) -> str:
    """A volume that is attached cannot be deleted."""
    _, volume = _attached(lab)
    return lab.refused(lambda: lab.clients("ec2").delete_volume(VolumeId=volume), "VolumeInUse", "attached")


@assumes("DetachVolume", _EXECUTE, "other words, or none", instances=1)
def detached_already(lab: Lab) -> str:
    """Detaching what is not attached is refused with IncorrectState or InvalidAttachment.NotFound."""
    zone, ec2 = next(iter(lab.subnets)), lab.clients("ec2")
    instance, volume = lab.instance(zone), lab.volume(zone)
    return lab.refused(
        lambda: ec2.detach_volume(VolumeId=volume, InstanceId=instance), "IncorrectState", "InvalidAttachment"
    )


@assumes("CreateSnapshot, CreateVolume", _EXECUTE, "no tag, or no volume there")
def volume_travels(lab: Lab) -> str:
    """A snapshot is tagged as it is made, and becomes a volume in another zone."""
    ec2 = lab.clients("ec2")
    here, there, *_ = lab.subnets
    made = ec2.create_snapshot(VolumeId=lab.volume(here), TagSpecifications=lab.tagged("snapshot"))
    snapshot = made["SnapshotId"]

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = ec2.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"][0]
        return found

    lab.until(lambda: shown()["State"] == "completed", "the snapshot is complete", 900)
    lab.is_tagged(shown())
    copy = lab.volume(there, SnapshotId=snapshot)
    [found] = ec2.describe_volumes(VolumeIds=[copy])["Volumes"]
    if found["AvailabilityZone"] != there or found.get("SnapshotId") != snapshot:
        raise Falsified(f"the copy is in {found['AvailabilityZone']}, of {found.get('SnapshotId')}")
    return "a tagged snapshot of one zone, a volume in another"
