"""Data volumes and their snapshots in a region, by the names that jobs' volumes have; read-only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contracts.agent import names
from contracts.names import TAG_STACK
from gpu_spot.preflight.account import ClientOf


@dataclass(frozen=True, slots=True)
class StoredVolume:
    """An EBS volume, or a snapshot of one.

    Attributes:
        id: ``vol-…`` or ``snap-…``.
        state: as EC2 says it.
        size_gib: of the volume.
        zone: Availability Zone; empty for a snapshot.
        instance: the instance that a volume is attached to, else empty.
        key: ARN of the KMS key; empty if not encrypted.
        tags: all tags.
    """

    id: str
    state: str
    size_gib: int
    zone: str = ""
    instance: str = ""
    key: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_snapshot(self) -> bool:
        """Whether this is a snapshot."""
        return not self.zone

    @property
    def is_unclaimed(self) -> bool:
        """Whether it belongs to no job and is not marked as unused."""
        return names.is_unclaimed(self.tags)

    def belongs_to(self, stack: str, job: str) -> bool:
        """Return whether it has the tags of a job."""
        return (self.tags.get(TAG_STACK), self.tags.get(names.TAG_JOB)) == (stack, job)

    def __str__(self) -> str:
        """Return id, size and state."""
        where = "snapshot" if self.is_snapshot else f"in {self.zone}"
        return f"{self.id} ({self.size_gib} GiB, {where}, {self.state})"


def read_named(clients: ClientOf) -> tuple[StoredVolume, ...]:
    """Return the volumes and then the snapshots with the names of jobs' volumes and snapshots.

    Deleted and failed ones are left out. Calls: one for each thousand of them.
    """
    ec2 = clients("ec2")
    volumes = ec2.get_paginator("describe_volumes").paginate(Filters=_named(names.VOLUME_NAME))
    snapshots = ec2.get_paginator("describe_snapshots").paginate(
        Filters=_named(names.SNAPSHOT_NAME), OwnerIds=["self"]
    )
    documents = (
        *(volume for page in volumes for volume in page["Volumes"]),
        *(snapshot for page in snapshots for snapshot in page["Snapshots"]),
    )
    return tuple(stored for stored in map(parse, documents) if stored.state not in names.GONE_STATES)


def unclaimed(stored: Iterable[StoredVolume]) -> tuple[StoredVolume, ...]:
    """Return the volumes that belong to no job; without such a volume, such snapshots."""
    candidates = [item for item in stored if item.is_unclaimed]
    return tuple([item for item in candidates if not item.is_snapshot] or candidates)


def parse(document: Mapping[str, Any]) -> StoredVolume:
    """Return a volume or snapshot from EC2's description."""
    attachments: Sequence[Mapping[str, Any]] = document.get("Attachments", ())
    attached = [a["InstanceId"] for a in attachments if a.get("State") != "detached"]
    return StoredVolume(
        id=document.get("SnapshotId", "") if "StartTime" in document else document["VolumeId"],
        state=document["State"],
        size_gib=document["VolumeSize"] if "StartTime" in document else document["Size"],
        zone=document.get("AvailabilityZone", ""),
        instance=attached[0] if attached else "",
        key=document.get("KmsKeyId", "") if document.get("Encrypted") else "",
        tags={tag["Key"]: tag["Value"] for tag in document.get("Tags", ())},
    )


def _named(name: str) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{names.TAG_NAME}", "Values": [name]}]
