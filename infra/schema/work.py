"""Settings that entries of ``services[]`` and ``training[]`` have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal, Protocol, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits
from contracts.agent.config import check_mount_paths
from contracts.agent.names import DATASET_DEVICES
from contracts.agent.secret_sources import parameter_names, secret_names
from infra.catalogue.instance_sizes import INSTANCE_SIZES
from infra.schema.access import ARN_BYTES, MAX_BYTES, CommandPermissions, PolicyArns
from infra.schema.base import Model, each_once
from infra.schema.capacity import Capacity

RunsOn: TypeAlias = Literal["instances", "kubernetes"]
"""Platform that an entry runs on."""

_TEXT_BYTES: Final = 4096


class Dataset(Model):
    """An EBS snapshot. Each instance mounts a volume that is created from it, read-only."""

    snapshot: limits.SnapshotId
    """ID of the snapshot."""
    path: limits.DatasetPath
    """Mount point."""
    initialization_rate_mib: limits.InitializationRateMib | None = None
    """Volume initialization rate in MiB/s, which is charged. Default: blocks are loaded when they are
    read."""
    throughput_mib: limits.ThroughputMib = 125
    """Throughput of the volume in MiB/s."""
    file_system: Literal["xfs", "ext4"] = "xfs"
    """The snapshot's file system, on Kubernetes, whose driver mounts nothing else. Instances detect it."""


class GroupEntry(Protocol):
    """An entry that runs on a capacity group."""

    @property
    def name(self) -> str:
        """Name of the entry and its group."""

    @property
    def capacity(self) -> Capacity:
        """Capacity of the group."""

    @property
    def fallback_capacity(self) -> Capacity:
        """Capacity of the fallback group."""

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """Datasets that each instance mounts."""


class Work(Model):
    """A workload on a group of instances, or on Kubernetes."""

    name: limits.Name
    """Name of the entry and its group; unique in the stack."""
    runs_on: RunsOn = "instances"
    """``instances``: a group of instances. ``kubernetes``: pods in the cluster of ``kubernetes``."""
    capacity: Capacity
    """Capacity of the group: how many instances of which types, and how they are bought."""
    datasets: Annotated[tuple[Dataset, ...], Field(max_length=len(DATASET_DEVICES))] = ()
    """Snapshots that each instance mounts as read-only volumes."""
    environment: limits.Environment = Field(default_factory=dict)
    """Environment variables of the command. Not for secrets: the values are readable in the instance's user
    data. A value that looks like a key is rejected."""
    secrets: Annotated[limits.Secrets, Field(max_length=20)] = Field(default_factory=dict)
    """Secret environment variables. The value is the name of a secret in Secrets Manager, or ``ssm:`` and the
    name of a parameter in Parameter Store; ``name:key`` is a key of a JSON value. They are read at each
    start of the command."""
    permissions: CommandPermissions = ()
    """What the command may do on AWS, with the role of its instance or pod. Without ``permissions`` and
    ``policyArns``, a job's command has no credentials."""
    policy_arns: PolicyArns = ()
    """Managed policies of the same role."""
    _each_once = field_validator("policy_arns")(each_once)

    shm_gib: Annotated[limits.SharedMemoryGib | None, Field(alias="shmGiB")] = None
    """Size of ``/dev/shm`` of each container in GiB. Default: half of the container's memory, which without a
    limit is its share of the instance's."""

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Names of the secrets in Secrets Manager that its instances or pods read for the command."""
        return secret_names(self.secrets.values())

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters that its instances or pods read for the command."""
        return parameter_names(self.secrets.values())

    @property
    def uses_aws(self) -> bool:
        """Whether the command may use the role of its instance or pod."""
        return bool(self.permissions or self.policy_arns)

    @property
    def fallback_capacity(self) -> Capacity:
        """Capacity of the fallback group: the same as that of the primary group."""
        return self.capacity

    @field_validator("datasets")
    @classmethod
    def _valid_mount_points(cls, datasets: tuple[Dataset, ...], info: ValidationInfo) -> tuple[Dataset, ...]:
        check_mount_paths([dataset.path for dataset in datasets], ())
        return datasets

    @field_validator("environment")
    @classmethod
    def _no_reserved_names(cls, environment: dict[str, str]) -> dict[str, str]:
        check_names(environment)
        return environment

    @field_validator("secrets", mode="before")
    @classmethod
    def _by_name(cls, secrets: object) -> object:
        for source in secrets.values() if isinstance(secrets, dict) else ():
            if isinstance(source, str) and source.startswith("arn:"):
                raise ValueError(
                    f"must be a secret in this account and Region (name or name:key), not {source!r}"
                )
        return secrets

    @field_validator("secrets")
    @classmethod
    def _variables_of_their_own(cls, secrets: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        check_names(secrets)
        if both := sorted(secrets.keys() & info.data.get("environment", {}).keys()):
            raise ValueError(f"{both[0]} is also in environment; set it in one of them")
        return secrets

    @field_validator("permissions")
    @classmethod
    def _fit_a_role(cls, permissions: CommandPermissions, info: ValidationInfo) -> CommandPermissions:
        references = info.data.get("secrets", {}).values()
        names = (*secret_names(references), *parameter_names(references))
        size = sum(ARN_BYTES + len(name) for name in names) + sum(item.size for item in permissions)
        if size > MAX_BYTES:
            raise ValueError(
                f"permissions and secrets take {size} characters of the role's policies, which have "
                f"room for {MAX_BYTES}; use policyArns"
            )
        return permissions

    @field_validator("shm_gib")
    @classmethod
    def _fits_the_memory(cls, gib: int | None, info: ValidationInfo) -> int | None:
        capacity: Capacity | None = info.data.get("capacity")
        for kind in capacity.types if capacity is not None and gib is not None else ():
            if (memory := INSTANCE_SIZES[kind].memory_gib) <= (gib or 0):
                raise ValueError(f"is {gib}, but {kind} has {memory:g} GiB; choose less")
        return gib

    # The subclasses declare the field, each with its own bounds.
    @field_validator("command", check_fields=False)
    @classmethod
    def _fits(cls, command: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        check_text(command, {**info.data.get("environment", {}), **info.data.get("secrets", {})})
        return command


def check_names(variables: Iterable[str]) -> None:
    """Raise ``ValueError`` for a reserved environment variable."""
    for name in variables:
        if name.startswith(limits.RESERVED_VARIABLES):
            raise ValueError(f"{name} is reserved; use names except GPU_SPOT_* and those of AWS credentials")


def check_text(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for an invalid command, and if it does not fit the user data."""
    for argument in command:
        if "\0" in argument or not command[0]:
            raise ValueError(f"has the argument {argument!r}; use a program and arguments without NUL")
    # The user data holds it as JSON within a JSON string.
    size = len(json.dumps(json.dumps([command, environment], indent=1)))
    if size > _TEXT_BYTES:
        raise ValueError(
            f"command, environment and secrets must have at most {_TEXT_BYTES} bytes of user data, not {size}"
        )
