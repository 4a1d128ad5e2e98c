"""EBS as the executor needs it: each method is one API call, descriptions are paged."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from contracts.agent import names
from contracts.agent.config import Volume
from contracts.names import TAG_GROUP, TAG_STACK
from userdata.agent.aws.clients import AwsError, asking
from userdata.agent.machine.errors import AgentError
from userdata.agent.storage.volume.model import LIVE, PREPARING, CreateVolume, EbsVolume, Snapshot

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

# What passes by itself: a description that lags, a state in transit, a limit on the request rate.
_PASSING: Final = frozenset(
    {
        # Snapshots under way: five of a volume, 100 of a region (EBS user guide, "Create EBS snapshots").
        "ConcurrentSnapshotLimitExceeded",
        "IncorrectState",
        "InternalError",
        "InsufficientVolumeCapacity",
        "InvalidSnapshot.NotFound",
        "InvalidVolume.NotFound",
        "PendingSnapshotLimitExceeded",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "SnapshotCreationPerVolumeRateExceeded",
        "Throttling",
        "Unavailable",
        "VolumeInUse",
    }
)


class PassingError(AgentError):
    """AWS refused for a reason that time mends: look again and plan anew."""


class NotThereError(AgentError):
    """What was to be removed does not exist."""


class AwsEbs:
    """One job's volumes and snapshots, on EC2: descriptions may lag.

    Raises `PassingError` for what passes, `AwsError` for the rest.
    """

    def __init__(self, client: EC2Client, stack: str, group: str, job: str, config: Volume) -> None:
        self._client = client
        self._config = config
        self._tags = {TAG_STACK: stack, TAG_GROUP: group, names.TAG_JOB: job}

    def volumes(self) -> tuple[EbsVolume, ...]:
        """Describe by tags (no ids: an id that is not yet visible would be an error)."""
        pages = self._pages("describe_volumes", "Volumes", self._filters(names.VOLUME_NAME))
        return tuple(_volume(v) for v in pages)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Describe our own snapshots by tags."""
        return self._described(names.SNAPSHOT_NAME)

    def create_volume(self, zone: str, token: int, wanted: CreateVolume) -> str:
        """Create an encrypted gp3 volume; the client token makes a repeated call return the first one's."""
        tags = {names.TAG_TOKEN: str(token), names.TAG_STATE: PREPARING}
        arguments: dict[str, Any] = {
            "AvailabilityZone": zone,
            "VolumeType": "gp3",
            "Encrypted": True,
            "Throughput": self._config.throughput_mib,
            "ClientToken": self._client_token(token, zone, wanted),
        }
        if self._config.kms_key_arn:
            arguments["KmsKeyId"] = self._config.kms_key_arn
        if wanted.snapshot:
            arguments["SnapshotId"] = wanted.snapshot
            if wanted.source:
                tags[names.TAG_SOURCE] = wanted.source
            if self._config.initialization_rate_mib:
                arguments["VolumeInitializationRate"] = self._config.initialization_rate_mib
        if (
            wanted.least_gib or not wanted.snapshot
        ):  # else as large as what it is made from, which nobody has told us
            # A copy may be larger than what it is a copy of, never smaller.
            arguments["Size"] = max(self._config.size_gib, wanted.least_gib)
        arguments["TagSpecifications"] = self._tag("volume", names.VOLUME_NAME, tags)
        return str(self._call("create_volume", **arguments)["VolumeId"])

    def modify_volume(self, volume: str, size_gib: int, throughput_mib: int) -> None:
        """Begin to change what is not 0 of a volume, while it is in use."""
        arguments: dict[str, int] = {}
        if size_gib:
            arguments["Size"] = size_gib
        if throughput_mib:
            arguments["Throughput"] = throughput_mib
        self._call("modify_volume", VolumeId=volume, **arguments)

    def create_snapshot(self, volume: str, token: int) -> str:
        """Begin a snapshot that carries the job's tags and the lease's token."""
        return self._begin_snapshot(volume, token, names.SNAPSHOT_NAME, {})

    def keep(self, volume: str, token: int, dataset: str) -> str:
        """Begin the snapshot of a prepared dataset, which is none of `snapshots`: it is not swept with them.

        By the dataset's tag the roles of its users know it.
        """
        return self._begin_snapshot(volume, token, names.DATASET_NAME, {names.TAG_DATASET: dataset})

    def kept(self) -> tuple[Snapshot, ...]:
        """Describe the snapshots of the datasets that the job has prepared; may lag."""
        return self._described(names.DATASET_NAME)

    def attach(self, volume: str, instance: str, device: str) -> None:
        """Attach.

        The volume outlives the instance (DeleteOnTermination is off for volumes attached later).
        """
        self._call("attach_volume", VolumeId=volume, InstanceId=instance, Device=device)

    def detach(self, volume: str, instance: str) -> None:
        """Begin to detach, never by force: that would lose what the kernel has not written yet."""
        self._call("detach_volume", VolumeId=volume, InstanceId=instance)

    def mark_live(self, volume: str, token: int) -> None:
        """Set state and token in one call."""
        tags = [{"Key": names.TAG_STATE, "Value": LIVE}, {"Key": names.TAG_TOKEN, "Value": str(token)}]
        self._call("create_tags", Resources=[volume], Tags=tags)

    def delete_volume(self, volume: str) -> None:
        """Delete; raises `NotThereError` when there is none."""
        self._delete("delete_volume", "InvalidVolume.NotFound", VolumeId=volume)

    def delete_snapshot(self, snapshot: str) -> None:
        """Delete; raises `NotThereError` when there is none.

        What later snapshots and volumes need of it stays (EBS user guide, "Delete a snapshot").
        """
        self._delete("delete_snapshot", "InvalidSnapshot.NotFound", SnapshotId=snapshot)

    def _described(self, name: str) -> tuple[Snapshot, ...]:
        arguments = {**self._filters(name), "OwnerIds": ["self"]}
        return tuple(_snapshot(s) for s in self._pages("describe_snapshots", "Snapshots", arguments))

    def _begin_snapshot(self, volume: str, token: int, name: str, more: dict[str, str]) -> str:
        spec = self._tag("snapshot", name, {names.TAG_TOKEN: str(token), names.TAG_SOURCE: volume, **more})
        return str(self._call("create_snapshot", VolumeId=volume, TagSpecifications=spec)["SnapshotId"])

    def _filters(self, name: str) -> dict[str, Any]:
        wanted = {names.TAG_NAME: name, **self._tags}
        del wanted[TAG_GROUP]  # a job keeps its volume when its group is renamed
        return {"Filters": [{"Name": f"tag:{key}", "Values": [value]} for key, value in wanted.items()]}

    def _tag(self, kind: str, name: str, more: dict[str, str]) -> list[dict[str, Any]]:
        tags = {names.TAG_NAME: name, **self._tags, **more}
        return [{"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}]

    def _client_token(self, token: int, zone: str, wanted: CreateVolume) -> str:
        parts = [*self._tags.values(), str(token), zone, wanted.snapshot or "blank", str(wanted.attempt)]
        text = "/".join(parts)
        return hashlib.sha256(text.encode()).hexdigest()  # 64 characters, the most that EC2 takes

    def _pages(self, operation: str, key: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        following: dict[str, str] = {}
        while True:
            page = self._call(operation, **arguments, **following)
            found += page[key]
            if not page.get("NextToken"):
                return found
            following = {"NextToken": page["NextToken"]}

    def _delete(self, operation: str, gone: str, **arguments: str) -> None:
        try:
            self._call(operation, **arguments)
        except PassingError as error:
            if gone in str(error):
                raise NotThereError(str(error)) from None
            raise

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            with asking(f"ec2 {operation}"):
                answer: dict[str, Any] = getattr(self._client, operation)(**arguments)
                return answer
        except AwsError as error:
            # Without a code: no connection, a timeout, credentials on their way.
            if error.code and error.code not in _PASSING:
                raise
            raise PassingError(str(error)) from None


def _volume(document: dict[str, Any]) -> EbsVolume:
    tags = {t["Key"]: t["Value"] for t in document.get("Tags", [])}
    attachment: dict[str, Any] = next(
        (a for a in document.get("Attachments", []) if a.get("State") != "detached"), {}
    )
    return EbsVolume(
        id=document["VolumeId"],
        zone=document["AvailabilityZone"],
        state=document["State"],
        instance=attachment.get("InstanceId"),
        attachment=attachment.get("State"),
        device=attachment.get("Device"),
        token=_number(tags.get(names.TAG_TOKEN)),
        source=tags.get(names.TAG_SOURCE),
        tag_state=tags.get(names.TAG_STATE),
        size_gib=document["Size"],
        throughput_mib=document.get("Throughput", 0),
    )


def _snapshot(document: dict[str, Any]) -> Snapshot:
    tags = {t["Key"]: t["Value"] for t in document.get("Tags", [])}
    return Snapshot(
        id=document["SnapshotId"],
        state=document["State"],
        source=document["VolumeId"],
        token=_number(tags.get(names.TAG_TOKEN)),
        progress=document.get("Progress", ""),
        started=document["StartTime"].timestamp(),
        size_gib=document["VolumeSize"],
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
