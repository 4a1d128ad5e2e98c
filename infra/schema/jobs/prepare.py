"""The shape of ``training[].prepare``: a dataset that is made once, before any GPU is paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits
from infra.catalogue import cpu_types
from infra.catalogue.accelerators import Architecture
from infra.schema.base import Model
from infra.schema.capacity import Capacity

GROUP_SUFFIX: Final = "-data"
"""What follows a dataset's name in that of the group that prepares it."""
LONGEST_DATASET_NAME: Final = 24 - len(GROUP_SUFFIX)


class Prepare(Model):
    """What makes a dataset once, on an instance without GPUs."""

    name: limits.Name | None = None
    """The dataset's; left out, the job's."""
    version: limits.DatasetVersion
    """What is in it changes with this, and with nothing else."""
    command: limits.Command
    """Fills ``$GPU_SPOT_DATASETS``, in the job's checkout."""
    instance_type: str
    """Without accelerators, of the image's architecture."""
    size_gib: Annotated[limits.VolumeGib | None, Field(alias="sizeGiB")] = None
    """GiB of the volume that it fills; left out, as many as the job's."""

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
