"""Settings of ``training[].prepare``: a dataset that is built once, before any GPU instance starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, ValidationInfo, field_validator

from contracts import limits
from infra.catalogue import cpu_types
from infra.catalogue.accelerators import Architecture
from infra.schema.base import CpuType, Model
from infra.schema.capacity import Capacity

GROUP_SUFFIX: Final = "-data"
"""Suffix of the name of the group that builds a dataset."""
MAX_DATASET_NAME_LENGTH: Final = 24 - len(GROUP_SUFFIX)


class Prepare(Model):
    """Preparation of a dataset, once, on an instance without GPUs."""

    name: limits.Name | None = None
    """Name of the dataset. Default: the job's name."""
    version: limits.DatasetVersion
    """Version of the dataset. A new version builds it again."""
    command: limits.Command
    """Command that fills the directory ``$GPU_SPOT_DATASETS``; it runs in the job's checkout."""
    instance_type: CpuType
    """Instance type without accelerators, with the CPU architecture of the job's machine image."""
    size_gib: Annotated[limits.VolumeGib | None, Field(alias="sizeGiB")] = None
    """Size in GiB of the dataset's volume. Default: ``volumeGiB`` of the job."""


class CpuCapacity(Capacity):
    """Capacity of a dataset's builder: one instance without accelerators, from ``ami``."""

    @property
    def is_nvidia(self) -> bool:
        """False: the type has no accelerators."""
        return False

    @property
    def architecture(self) -> Architecture:
        """CPU architecture, by the name of the type."""
        return cpu_types.architecture(self.types[0])

    @property
    def images(self) -> Mapping[str, tuple[str, ...]]:
        """The machine image of the job."""
        assert self.ami is not None
        return {self.ami: self.types}

    @field_validator("instance_types")
    @classmethod
    def _bootable_types(cls, names: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        for name in names or ():
            cpu_types.architecture(name)
        return names
