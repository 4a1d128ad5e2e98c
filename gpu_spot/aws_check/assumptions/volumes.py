"""EBS volumes of jobs."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified

_EXECUTE: Final = "userdata/agent/storage/volume/execute.py"
_DEVICE: Final = "/dev/sdf"


def _attach(test_bed: AwsTestBed, volume: str, instance: str) -> None:
    test_bed.clients("ec2").attach_volume(VolumeId=volume, InstanceId=instance, Device=_DEVICE)


def _attached_volume(test_bed: AwsTestBed) -> tuple[str, str]:
    zone = next(iter(test_bed.subnets))
    instance, volume = test_bed.instance(zone), test_bed.volume(zone)
    _attach(test_bed, volume, instance)
    test_bed.wait_until(lambda: test_bed.volume_state(volume) == "in-use", "the volume is attached")
    return instance, volume


@assumes("AttachVolume", _EXECUTE, "it is attached", instances=1)
def volume_of_another_zone(test_bed: AwsTestBed) -> str:
    """A volume cannot be attached to an instance of another zone."""
    first_zone, second_zone, *_ = test_bed.subnets
    instance, volume = test_bed.instance(first_zone), test_bed.volume(second_zone)
    return test_bed.expect_refusal(
        lambda: _attach(test_bed, volume, instance), "ZoneMismatch", "same availability zone"
    )


@assumes(
    "AttachVolume",
    _EXECUTE,
    "it is attached twice",
    instances=2,
)
def one_holder(test_bed: AwsTestBed) -> str:
    """An attached volume cannot be attached to another instance."""
    _, volume = _attached_volume(test_bed)
    other_instance = test_bed.instance(next(iter(test_bed.subnets)))
    return test_bed.expect_refusal(
        lambda: _attach(test_bed, volume, other_instance), "VolumeInUse", "already attached", "in-use"
    )


@assumes("DeleteVolume", _EXECUTE, "it is deleted", instances=1)
def attached_is_not_deleted(test_bed: AwsTestBed) -> str:
    """An attached volume cannot be deleted."""
    _, volume = _attached_volume(test_bed)
    return test_bed.expect_refusal(
        lambda: test_bed.clients("ec2").delete_volume(VolumeId=volume), "VolumeInUse", "attached"
    )


@assumes("DetachVolume", _EXECUTE, "another message, or none", instances=1)
def detached_already(test_bed: AwsTestBed) -> str:
    """Detaching a detached volume is rejected with IncorrectState or InvalidAttachment.NotFound."""
    zone, ec2 = next(iter(test_bed.subnets)), test_bed.clients("ec2")
    instance, volume = test_bed.instance(zone), test_bed.volume(zone)
    return test_bed.expect_refusal(
        lambda: ec2.detach_volume(VolumeId=volume, InstanceId=instance), "IncorrectState", "InvalidAttachment"
    )


@assumes(
    "CreateSnapshot, CreateVolume", _EXECUTE, "no tag, or no volume in the other zone", name="volume-travels"
)
def snapshot_moves_volume(test_bed: AwsTestBed) -> str:
    """A snapshot is tagged at creation, and a volume can be created from it in another zone."""
    ec2 = test_bed.clients("ec2")
    first_zone, second_zone, *_ = test_bed.subnets
    response = ec2.create_snapshot(
        VolumeId=test_bed.volume(first_zone), TagSpecifications=test_bed.tag_specifications("snapshot")
    )
    snapshot = response["SnapshotId"]

    def describe_snapshot() -> dict[str, Any]:
        description: dict[str, Any] = ec2.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"][0]
        return description

    test_bed.wait_until(lambda: describe_snapshot()["State"] == "completed", "the snapshot is complete", 900)
    test_bed.expect_tags(describe_snapshot())
    copy = test_bed.volume(second_zone, SnapshotId=snapshot)
    [volume] = ec2.describe_volumes(VolumeIds=[copy])["Volumes"]
    if volume["AvailabilityZone"] != second_zone or volume.get("SnapshotId") != snapshot:
        raise Falsified(f"the copy is in {volume['AvailabilityZone']}, from {volume.get('SnapshotId')}")
    return "a tagged snapshot, and a volume from it in another zone"
