"""The shape of ``training[].prepare``: a dataset that is made once, before any GPU is paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, ValidationInfo, field_validator

from infra import cpu_types
from infra.accelerators import Architecture
from infra.schema.base import Model
from infra.schema.capacity import Capacity
from userdata.agent.config import limits

GROUP_SUFFIX: Final = "-data"
"""What follows a dataset's name in that of the group that prepares it."""
LONGEST_DATASET_NAME: Final = 24 - len(GROUP_SUFFIX)


class Prepare(Model):
    """What makes the dataset ``name`` (left out: the job's name) in this ``version``, once.

    ``command`` runs in the job's checkout on an instance of ``instance_type``, with ``GPU_SPOT_DATASETS``
    writable. ``size_gib`` is the volume's that it fills (left out: as large as the job's).
    """

    name: limits.Name | None = None
    version: limits.DatasetVersion
    command: limits.Command
    instance_type: str
    size_gib: Annotated[limits.VolumeGib | None, Field(alias="sizeGiB")] = None

    @field_validator("instance_type")
    @classmethod
    def _without_accelerators(cls, name: str) -> str:
        cpu_types.architecture(name)
        return name


class CpuCapacity(Capacity):
    """The capacity of who prepares a dataset: one instance of a type without accelerators, from ``ami``."""

    @property
    def is_nvidia(self) -> bool:
        """It has no accelerators."""
        return False

    @property
    def architecture(self) -> Architecture:
        """What the type's name tells."""
        return cpu_types.architecture(self.types[0])

    @property
    def images(self) -> Mapping[str, tuple[str, ...]]:
        """The image of the job that it prepares for."""
        assert self.ami is not None
        return {self.ami: self.types}

    @field_validator("instance_types")
    @classmethod
    def _bootable_types(cls, names: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        for name in names or ():
            cpu_types.architecture(name)
        return names
