"""EBS client of the executor: each method is one API call, descriptions are paged."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from contracts.agent import names
from contracts.agent.config import Volume
from contracts.names import TAG_GROUP
from userdata.agent.aws.clients import AwsError, aws_errors
from userdata.agent.machine import log
from userdata.agent.machine.errors import TransientError
from userdata.agent.storage.volume.model import FAILED, LIVE, PREPARING, CreateVolume, EbsVolume, Snapshot

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

# Transient: a description that lags, a state in transition, a request rate limit.
_TRANSIENT_CODES: Final = frozenset(
    {
        # Concurrent snapshots: five per volume, 100 per region (EBS user guide, "Create EBS snapshots").
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
# Source: EC2 user guide, "Tag your Amazon EC2 resources", "Tag restrictions".
_MAX_TAG_LENGTH: Final = 256


class AwsEbs:
    """One job's volumes and snapshots in EC2; descriptions may lag.

    Methods raise `TransientError` for transient errors, `AwsError` for others.
    """

    def __init__(self, client: EC2Client, stack: str, group: str, job: str, config: Volume) -> None:
        self._client = client
        self._config = config
        self._stack = stack
        self._group = group
        self._job = job

    def volumes(self) -> tuple[EbsVolume, ...]:
        """Describe the job's volumes by tags (not by id: an id that is not visible yet is an error)."""
        pages = self._pages("describe_volumes", "Volumes", self._filters(names.VOLUME_NAME, {}))
        return tuple(_volume(v) for v in pages)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Describe the job's snapshots by tags."""
        return self._described(names.SNAPSHOT_NAME, {})

    def unclaimed(self) -> tuple[str, ...]:
        """Return the ids of volumes that have the name of jobs' volumes and belong to no job; may lag.

        Without such a volume, the ids of such snapshots: an interrupted move leaves only a snapshot.
        """
        named = self._pages("describe_volumes", "Volumes", _filters({names.TAG_NAME: names.VOLUME_NAME}))
        volumes = [v["VolumeId"] for v in named if _is_unclaimed(v)]
        if volumes:
            return tuple(sorted(volumes))
        arguments = {**_filters({names.TAG_NAME: names.SNAPSHOT_NAME}), "OwnerIds": ["self"]}
        snapshots = self._pages("describe_snapshots", "Snapshots", arguments)
        return tuple(sorted(s["SnapshotId"] for s in snapshots if _is_unclaimed(s)))

    def create_volume(self, zone: str, token: int, instance: str, request: CreateVolume) -> str:
        """Create an encrypted gp3 volume for ``instance``; the client token makes the call idempotent."""
        tags = {names.TAG_TOKEN: str(token), names.TAG_STATE: PREPARING, names.TAG_INSTANCE: instance}
        arguments: dict[str, Any] = {
            "AvailabilityZone": zone,
            "VolumeType": "gp3",
            "Encrypted": True,
            "Throughput": self._config.throughput_mib,
            "ClientToken": self._client_token(token, zone, request),
        }
        if self._config.kms_key_arn:
            arguments["KmsKeyId"] = self._config.kms_key_arn
        if request.snapshot:
            arguments["SnapshotId"] = request.snapshot
            if request.source:
                tags[names.TAG_SOURCE] = request.source
            if self._config.initialization_rate_mib:
                arguments["VolumeInitializationRate"] = self._config.initialization_rate_mib
        if request.min_size_gib or not request.snapshot:  # else EC2 uses the size of the snapshot
            # A volume may be larger than its snapshot, never smaller.
            arguments["Size"] = max(self._config.size_gib, request.min_size_gib)
        arguments["TagSpecifications"] = self._tag("volume", names.VOLUME_NAME, tags)
        return str(self._call("create_volume", **arguments)["VolumeId"])

    def modify_volume(self, volume: str, size_gib: int, throughput_mib: int) -> None:
        """Start to modify size and throughput online; 0 leaves a value unchanged."""
        arguments: dict[str, int] = {}
        if size_gib:
            arguments["Size"] = size_gib
        if throughput_mib:
            arguments["Throughput"] = throughput_mib
        self._call("modify_volume", VolumeId=volume, **arguments)

    def create_snapshot(self, volume: str, token: int) -> str:
        """Start a snapshot with the job's tags and the lease's token."""
        return self._start_snapshot(volume, token, names.SNAPSHOT_NAME, {})

    def create_dataset_snapshot(self, volume: str, token: int, dataset: str) -> str:
        """Start the snapshot of a prepared dataset; `snapshots` does not list it, so it is never cleaned up.

        The dataset's tag gives the roles of its users access, the driver's those of pods.
        """
        tags = {names.TAG_DATASET: dataset, names.TAG_EBS_DRIVER: "true"}
        return self._start_snapshot(volume, token, names.DATASET_NAME, tags)

    def dataset_snapshots(self, dataset: str = "") -> tuple[Snapshot, ...]:
        """Describe the snapshots of ``dataset``, or of all that the job has prepared; may lag."""
        return self._described(names.DATASET_NAME, {names.TAG_DATASET: dataset} if dataset else {})

    def attach(self, volume: str, instance: str, device: str) -> None:
        """Attach the volume; it outlives the instance (DeleteOnTermination is off after launch)."""
        self._call("attach_volume", VolumeId=volume, InstanceId=instance, Device=device)

    def detach(self, volume: str, instance: str) -> None:
        """Start to detach, never by force: that would lose dirty pages."""
        self._call("detach_volume", VolumeId=volume, InstanceId=instance)

    def mark_live(self, volume: str, token: int) -> None:
        """Set the tags for state and token in one call."""
        tags = [{"Key": names.TAG_STATE, "Value": LIVE}, {"Key": names.TAG_TOKEN, "Value": str(token)}]
        self._call("create_tags", Resources=[volume], Tags=tags)

    def mark_failed(self, volume: str, reason: str) -> None:
        """Mark a candidate as failed, with the reason; a tag has at most 256 characters."""
        value = " ".join(f"{FAILED}: {reason}".split())[:_MAX_TAG_LENGTH]
        self._call("create_tags", Resources=[volume], Tags=[{"Key": names.TAG_STATE, "Value": value}])

    def delete_volume(self, volume: str) -> bool:
        """Delete a leftover volume; return False if EC2 refuses that."""
        return self._delete("delete_volume", "InvalidVolume.NotFound", VolumeId=volume)

    def delete_snapshot(self, snapshot: str) -> bool:
        """Delete a snapshot; return False if EC2 refuses that.

        Data that later snapshots and volumes need is kept (EBS user guide, "Delete a snapshot").
        """
        return self._delete("delete_snapshot", "InvalidSnapshot.NotFound", SnapshotId=snapshot)

    def _described(self, name: str, more: dict[str, str]) -> tuple[Snapshot, ...]:
        arguments = {**self._filters(name, more), "OwnerIds": ["self"]}
        return tuple(_snapshot(s) for s in self._pages("describe_snapshots", "Snapshots", arguments))

    def _start_snapshot(self, volume: str, token: int, name: str, more: dict[str, str]) -> str:
        spec = self._tag("snapshot", name, {names.TAG_TOKEN: str(token), names.TAG_SOURCE: volume, **more})
        return str(self._call("create_snapshot", VolumeId=volume, TagSpecifications=spec)["SnapshotId"])

    def _filters(self, name: str, more: dict[str, str]) -> dict[str, Any]:
        # Not the group: a job keeps its volume if its group is renamed.
        return _filters({**names.job_tags(self._stack, self._job, name), **more})

    def _tag(self, kind: str, name: str, more: dict[str, str]) -> list[dict[str, Any]]:
        tags = {**names.job_tags(self._stack, self._job, name), TAG_GROUP: self._group, **more}
        return [{"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}]

    def _client_token(self, token: int, zone: str, request: CreateVolume) -> str:
        source, attempt = request.snapshot or "blank", str(request.attempt)
        text = "/".join((self._stack, self._group, self._job, str(token), zone, source, attempt))
        return hashlib.sha256(text.encode()).hexdigest()  # 64 characters, the maximum of EC2

    def _pages(self, operation: str, key: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        next_page: dict[str, str] = {}
        while True:
            page = self._call(operation, **arguments, **next_page)
            items += page[key]
            if not page.get("NextToken"):
                return items
            next_page = {"NextToken": page["NextToken"]}

    def _delete(self, operation: str, not_found_code: str, **arguments: str) -> bool:
        """Delete what no job needs: a refusal, such as of a snapshot that an image uses, is only logged."""
        try:
            self._call(operation, **arguments)
        except TransientError as error:
            if not_found_code not in str(error):
                raise
        except AwsError as error:
            log.warning("leftover not deleted", error=str(error), **arguments)
            return False
        return True

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            with aws_errors(f"ec2 {operation}"):
                response: dict[str, Any] = getattr(self._client, operation)(**arguments)
                return response
        except AwsError as error:
            # Without a code: no connection, a timeout, credentials not available yet. A number is the status
            # of an answer without a code, of what stands before EC2.
            if error.code and not error.code.startswith("5") and error.code not in _TRANSIENT_CODES:
                raise
            raise TransientError(str(error)) from None


def _filters(tags: dict[str, str]) -> dict[str, Any]:
    return {"Filters": [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]}


def _is_unclaimed(document: dict[str, Any]) -> bool:
    return document["State"] not in names.GONE_STATES and names.is_unclaimed(_tags(document))


def _tags(document: dict[str, Any]) -> dict[str, str]:
    return {t["Key"]: t["Value"] for t in document.get("Tags", [])}


def _volume(document: dict[str, Any]) -> EbsVolume:
    tags = _tags(document)
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
        creator=tags.get(names.TAG_INSTANCE, ""),
    )


def _snapshot(document: dict[str, Any]) -> Snapshot:
    tags = _tags(document)
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
