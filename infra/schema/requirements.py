"""Settings of ``capacity.instanceRequirements``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from contracts.sentences import alternatives
from infra.catalogue import accelerators as catalogue
from infra.catalogue.accelerators import Architecture
from infra.catalogue.instance_sizes import INSTANCE_SIZES
from infra.schema.base import Model


class NumberRange(Model):
    """Bounds, both inclusive."""

    min: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Lower bound, inclusive."""
    max: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Upper bound, inclusive. Default: no bound."""

    @field_validator("max")
    @classmethod
    def _not_below_min(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < info.data.get("min", value):
            raise ValueError(f"must be at least min ({info.data['min']}), not {value}")
        return value

    def contains(self, value: int) -> bool:
        """Return whether ``value`` lies within the bounds."""
        return self.min <= value and (self.max is None or value <= self.max)


class InstanceRequirements(Model):
    """Requirements that select instance types from the catalogue.

    Types that no known image boots are excluded.
    """

    architecture: Architecture = "x86_64"
    """CPU architecture."""
    accelerators: NumberRange = Field(default_factory=NumberRange)
    """Number of GPUs."""
    accelerator_names: tuple[str, ...] = ()
    """Accelerator names, such as ``L4``. Default: all in the catalogue."""
    accelerator_memory_gib: NumberRange = Field(default_factory=NumberRange, alias="acceleratorMemoryGiB")
    """Memory of each GPU in GiB."""
    vcpus: NumberRange = Field(default_factory=NumberRange)
    """Number of vCPUs."""
    memory_gib: NumberRange = Field(default_factory=NumberRange, alias="memoryGiB")
    """Main memory in GiB."""

    @field_validator("accelerator_names")
    @classmethod
    def _known_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        accelerators = sorted({t.family.accelerator for t in catalogue.CATALOGUE.values() if is_nvidia(t)})
        for name in names:
            if name not in accelerators:
                raise ValueError(f"{name!r} is not a known accelerator; use {alternatives(accelerators)}")
        return names

    def matching_types(self, ami: str | None, amis: Mapping[str, str]) -> tuple[str, ...]:
        """Return the NVIDIA types that match and that a known image boots, without bare metal."""
        return tuple(
            instance_type.name
            for instance_type in catalogue.CATALOGUE.values()
            if is_nvidia(instance_type)
            and instance_type.family.architecture == self.architecture
            and (
                instance_type.family.needs_ami is None or ami is not None or instance_type.family.name in amis
            )
            and (not self.accelerator_names or instance_type.family.accelerator in self.accelerator_names)
            and self.accelerators.contains(instance_type.accelerators)
            and self.accelerator_memory_gib.contains(instance_type.family.memory_gib)
            and self.vcpus.contains(INSTANCE_SIZES[instance_type.name].vcpus)
            and self.memory_gib.contains(INSTANCE_SIZES[instance_type.name].memory_gib)
            and not instance_type.name.endswith(".metal")
        )


def is_nvidia(instance_type: catalogue.InstanceType) -> bool:
    """Return whether a type's accelerators are NVIDIA GPUs."""
    return instance_type.family.vendor == "nvidia"
