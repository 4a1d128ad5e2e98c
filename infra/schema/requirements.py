"""Instance types by what they have, in place of their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from infra.catalogue import accelerators as catalogue
from infra.catalogue.accelerators import Architecture
from infra.schema.base import Model


class Range(Model):
    """Bounds, both included; no ``max`` means no upper bound."""

    min: Annotated[int, Field(ge=1, le=100_000)] = 1
    """The least, included."""
    max: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """The most, included; left out, there is no upper bound."""

    @field_validator("max")
    @classmethod
    def _not_below_min(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < info.data.get("min", value):
            raise ValueError(f"{value} is below min, allowed: at least {info.data['min']}")
        return value

    def holds(self, value: int) -> bool:
        """Return whether ``value`` lies within the bounds."""
        return self.min <= value and (self.max is None or value <= self.max)


class InstanceRequirements(Model):
    """Instance types by what they have. Accelerators: how many, of which kind, GiB of memory on each.

    What an image cannot boot is never taken: AWS chooses among the catalogue's types that match.
    """

    architecture: Architecture = "x86_64"
    """Of the processors."""
    accelerators: Range = Field(default_factory=Range)
    """How many GPUs a type has."""
    accelerator_names: tuple[str, ...] = ()
    """Which kinds, such as ``l4``; left out, all of the catalogue."""
    accelerator_memory_gib: Range = Field(default_factory=Range, alias="acceleratorMemoryGiB")
    """GiB of memory on each GPU."""
    vcpus: Range = Field(default_factory=Range)
    """How many vCPUs a type has."""
    memory_gib: Range = Field(default_factory=Range, alias="memoryGiB")
    """GiB of main memory."""

    @field_validator("accelerator_names")
    @classmethod
    def _known_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = sorted({t.family.accelerator for t in catalogue.CATALOGUE.values() if is_nvidia(t)})
        for name in names:
            if name not in known:
                raise ValueError(f"{name!r} is not a known accelerator, allowed: {', '.join(known)}")
        return names

    def matching(self, ami: str | None, amis: Mapping[str, str]) -> tuple[str, ...]:
        """Return the catalogue's NVIDIA types that match and that a known image boots; no bare metal."""
        return tuple(
            known.name
            for known in catalogue.CATALOGUE.values()
            if is_nvidia(known)
            and known.family.architecture == self.architecture
            and (known.family.needs_ami is None or ami is not None or known.family.name in amis)
            and (not self.accelerator_names or known.family.accelerator in self.accelerator_names)
            and self.accelerators.holds(known.accelerators)
            and self.accelerator_memory_gib.holds(known.family.memory_gib)
            and not known.name.endswith(".metal")
        )


def is_nvidia(known: catalogue.InstanceType) -> bool:
    """Return whether a type's accelerators are NVIDIA's."""
    return known.family.vendor == "nvidia"
