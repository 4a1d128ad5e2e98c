"""What an entry of ``services[]`` and one of ``training[]`` have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal, Protocol, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits
from contracts.agent.config import check_places
from contracts.agent.names import DATASET_DEVICES
from infra.catalogue import accelerators as catalogue
from infra.schema.base import Model
from infra.schema.capacity import Capacity

RunsOn: TypeAlias = Literal["instances", "kubernetes"]
"""Which half an entry runs on."""

_OURS: Final = ("GPU_SPOT_", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_TEXT_BYTES: Final = 4096


class Dataset(Model):
    """A snapshot that each instance gets a volume of, mounted read-only."""

    snapshot: limits.SnapshotId
    """Its id."""
    path: limits.DatasetPath
    """Where it is mounted."""
    initialization_rate_mib: limits.InitializationRateMib | None = None
    """MiB/s at which AWS fills the volume ahead of reads, which is paid; left out, at the reads."""
    throughput_mib: limits.ThroughputMib = 125
    """The volume's, MiB/s."""


class GroupEntry(Protocol):
    """What every entry has that runs on a capacity group."""

    @property
    def name(self) -> str:
        """Of the entry and its group."""

    @property
    def capacity(self) -> Capacity:
        """How much of what."""

    @property
    def fallback_capacity(self) -> Capacity:
        """What the fallback starts."""

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """Snapshots that each instance gets a volume of."""


class Work(Model):
    """Work on a group of instances, or on Kubernetes as pods of the cluster in ``kubernetes``."""

    name: limits.Name
    """Of the group; unique in the stack."""
    runs_on: RunsOn = "instances"
    """On a group of instances, or as pods of the cluster in ``kubernetes``."""
    capacity: Capacity
    """How much of what, and how it is paid for."""
    datasets: Annotated[tuple[Dataset, ...], Field(max_length=len(DATASET_DEVICES))] = ()
    """Snapshots that each instance gets a volume of."""
    environment: limits.Environment = Field(default_factory=dict)
    """Of the command. No place for secrets: it stands in the boot data."""

    @property
    def fallback_capacity(self) -> Capacity:
        """What the fallback starts: what the primary side does."""
        return self.capacity

    @field_validator("datasets")
    @classmethod
    def _places(cls, datasets: tuple[Dataset, ...], info: ValidationInfo) -> tuple[Dataset, ...]:
        check_places([dataset.path for dataset in datasets], ())
        if datasets and "capacity" in info.data:
            catalogue.check_volumes(info.data["capacity"].types)
        return datasets

    @field_validator("environment")
    @classmethod
    def _names_of_others(cls, environment: dict[str, str]) -> dict[str, str]:
        check_names(environment)
        return environment

    # The subclasses have it, each with its own bounds.
    @field_validator("command", check_fields=False)
    @classmethod
    def _fits(cls, command: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        check_text(command, info.data.get("environment", {}))
        return command


def check_names(variables: Iterable[str]) -> None:
    """Raise ``ValueError`` for an environment variable that is not the stack file's to set."""
    for name in variables:
        if name.startswith(_OURS):
            raise ValueError(
                f"{name} is the agent's or the role's to set, allowed: names but GPU_SPOT_* and AWS keys"
            )


def check_text(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for what cannot be started, and for more than the boot data holds."""
    for argument in command:
        if "\0" in argument or not command[0]:
            raise ValueError(f"argument {argument!r}, allowed: a program, arguments without NUL")
    # As it stands there: JSON in a file that is itself a string of JSON.
    size = len(json.dumps(json.dumps([command, environment], indent=1)))
    if size > _TEXT_BYTES:
        raise ValueError(
            f"command and environment take {size} bytes of the boot data, allowed: at most {_TEXT_BYTES}"
        )
