"""Gives a job an existing data volume: checks it, tags it for the node agent, and says what follows.

An encrypted volume is attached as it is. Of an unencrypted one the job gets a snapshot, from which the node
agent creates an encrypted volume: a stack has no unencrypted ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from contracts.agent import names
from contracts.names import TAG_GROUP, TAG_STACK
from gpu_spot.jobs.reader import JobError, JobReader
from gpu_spot.preflight.unclaimed_volumes import StoredVolume, parse, read_named, unclaimed

_KEY_OF_AWS: Final = "alias/aws/ebs"
"""AWS's key for EBS, which all roles of the account may use through EC2 (KMS guide, "AWS managed keys")."""


@dataclass(frozen=True, slots=True)
class VolumeRules:
    """What the stack file says about a job's volume: its size, the zones, the key (empty: AWS's)."""

    job: str
    size_gib: int
    zones: tuple[str, ...]
    kms_key_arn: str = ""


@dataclass(frozen=True, slots=True)
class Adoption:
    """A checked adoption.

    ``leftovers`` are snapshots of no job that count as unused afterwards; ``effects`` are sentences.
    """

    rules: VolumeRules
    source: StoredVolume
    leftovers: tuple[str, ...]
    effects: tuple[str, ...]
    is_done: bool = False
    """Whether the volume already has the job's tags."""

    @property
    def needs_copy(self) -> bool:
        """Whether the job gets a snapshot of the volume, because the volume is not encrypted."""
        return not self.source.is_snapshot and not self.source.key


class VolumeAdoption:
    """Adopts volumes for the jobs of one stack, deployed or not."""

    def __init__(self, clients: Callable[[str], Any], stack: str, reader: JobReader) -> None:
        self._ec2 = clients("ec2")
        self._clients = clients
        self._stack = stack
        self._reader = reader

    def check(self, rules: VolumeRules, volume: str = "") -> Adoption:
        """Return the adoption of ``volume`` (``vol-…`` or ``snap-…``; empty: the only one without a job).

        Raises:
            JobError: the job has a volume, or this one cannot be adopted.
        """
        stored = read_named(self._clients)
        source = self._describe(volume) if volume else self._only_candidate(stored)
        if source.belongs_to(self._stack, rules.job):
            return Adoption(rules, source, (), (f"{source.id} already belongs to {rules.job}",), is_done=True)
        self._check_has_none(rules.job, stored)
        self._check_source(source, rules)
        candidates = [item.id for item in stored if item.is_unclaimed and item.id != source.id]
        leftovers = () if any(item.startswith("vol-") for item in candidates) else tuple(candidates)
        return Adoption(rules, source, leftovers, tuple(_effects(source, rules)))

    def adopt(self, adoption: Adoption) -> str:
        """Write the tags; return a one-line message."""
        rules, source = adoption.rules, adoption.source
        if adoption.is_done:
            return adoption.effects[0]
        unused = list(adoption.leftovers)
        if adoption.needs_copy:
            response = self._ec2.create_snapshot(
                VolumeId=source.id,
                Description=f"{source.id} for job {rules.job} of gpu-spot stack {self._stack}",
                TagSpecifications=[
                    {"ResourceType": "snapshot", "Tags": self._tags(rules.job, names.SNAPSHOT_NAME)}
                ],
            )
            adopted = f"{response['SnapshotId']}, a snapshot of {source.id}"
            unused.append(source.id)
        else:
            name = names.SNAPSHOT_NAME if source.is_snapshot else names.VOLUME_NAME
            self._ec2.create_tags(Resources=[source.id], Tags=self._tags(rules.job, name))
            adopted = source.id
        self._mark_unused(unused)
        return f"{rules.job} adopts {adopted}"

    def decline(self) -> str:
        """Mark the volumes and snapshots without a job as unused: new jobs start with blank volumes."""
        candidates = [item.id for item in read_named(self._clients) if item.is_unclaimed]
        self._mark_unused(candidates)
        if not candidates:
            return "there is no volume or snapshot without a job: new jobs start with blank volumes"
        return f"marked as unused: {', '.join(candidates)}; new jobs start with blank volumes"

    def _only_candidate(self, stored: Sequence[StoredVolume]) -> StoredVolume:
        candidates = unclaimed(stored)
        if not candidates:
            raise JobError(
                f"there is no volume {names.VOLUME_NAME!r} or snapshot {names.SNAPSHOT_NAME!r} without a job"
                "; give the ID of another one"
            )
        if len(candidates) > 1:
            listed = ", ".join(str(item) for item in candidates)
            raise JobError(f"{len(candidates)} belong to no job: {listed}; give the ID of one")
        return candidates[0]

    def _describe(self, volume: str) -> StoredVolume:
        try:
            if volume.startswith("snap-"):
                [document] = self._ec2.describe_snapshots(SnapshotIds=[volume])["Snapshots"]
            else:
                [document] = self._ec2.describe_volumes(VolumeIds=[volume])["Volumes"]
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if not code.startswith(("InvalidVolume", "InvalidSnapshot", "InvalidParameterValue")):
                raise
            raise JobError(
                f"volume {volume!r} does not exist; name a volume (vol-…) or snapshot (snap-…) of the "
                "stack's region"
            ) from None
        return parse(document)

    def _check_has_none(self, job: str, stored: Sequence[StoredVolume]) -> None:
        snapshot = self._reader.find(job)
        if snapshot is not None and snapshot.row.volume:
            raise JobError(f"job {job!r} already has volume {snapshot.row.volume}; name a job without one")
        if existing := [str(item) for item in stored if item.belongs_to(self._stack, job)]:
            raise JobError(f"job {job!r} already has {', '.join(existing)}; name a job without a volume")

    def _check_source(self, source: StoredVolume, rules: VolumeRules) -> None:
        if TAG_STACK in source.tags or names.TAG_JOB in source.tags:
            owner, stack = source.tags.get(names.TAG_JOB, "none"), source.tags.get(TAG_STACK, "none")
            raise JobError(f"{source.id} belongs to job {owner!r} of stack {stack!r}")
        if source.instance:
            raise JobError(f"{source.id} is attached to {source.instance}; detach it first")
        allowed = ("pending", "completed") if source.is_snapshot else ("available",)
        if source.state not in allowed:
            raise JobError(f"{source.id} must be {' or '.join(allowed)}, but its state is {source.state}")
        if source.key and source.key not in (rules.kms_key_arn, self._key_of_aws()):
            copy = f"aws ec2 copy-snapshot --encrypted --kms-key-id {rules.kms_key_arn or _KEY_OF_AWS}"
            raise JobError(
                f"{source.id} is encrypted with {source.key}, which the job's role may not use; adopt a copy "
                f"of a snapshot of it: {copy}"
            )

    def _key_of_aws(self) -> str:
        return str(self._clients("kms").describe_key(KeyId=_KEY_OF_AWS)["KeyMetadata"]["Arn"])

    def _tags(self, job: str, name: str) -> list[dict[str, str]]:
        return _as_tags({**names.job_tags(self._stack, job, name), TAG_GROUP: job})

    def _mark_unused(self, ids: Sequence[str]) -> None:
        if ids:
            self._ec2.create_tags(Resources=list(ids), Tags=_as_tags({names.TAG_STATE: names.STATE_UNUSED}))


def _effects(source: StoredVolume, rules: VolumeRules) -> list[str]:
    """Return what happens at the job's next boots."""
    size = max(source.size_gib, rules.size_gib)
    if source.is_snapshot or not source.key:
        origin = source.id if source.is_snapshot else f"a snapshot of {source.id}, which is not encrypted"
        return [
            f"the first instance creates an encrypted volume of {size} GiB from {origin}",
            "an instance waits until the snapshot is completed; start the job afterwards",
            f"{source.id} stays: delete it when the job has resumed",
        ]
    first = (
        f"an instance in {source.zone} attaches {source.id}"
        if source.zone in rules.zones
        else f"the stack has no subnet in {source.zone}"
    )
    grows = f"; it grows to {size} GiB" if size > source.size_gib else ""
    return [
        f"{first}{grows}",
        f"an instance in another zone takes a snapshot, creates its own volume from it, and then deletes "
        f"{source.id}",
    ]


def _as_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
