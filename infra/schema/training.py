"""The shape of ``training[]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from infra.schema.base import Model, Name
from infra.schema.capacity import Capacity

ON_THE_VOLUME = "volume"
"""What ``checkpoints`` says where they lie beside the dataset."""


class Training(Model):
    """A training job on one instance, which its data volume follows from zone to zone.

    ``revision`` is a commit: a branch would make two starts of one job two programs. ``dataset`` is copied to
    the volume when that is new. ``checkpoints`` names the access point of the file system where they lie.
    """

    name: Name
    capacity: Capacity
    # No user and no password in it: it stands in the boot data.
    repository: Annotated[str, Field(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9_.~-]+)+$")]
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)]
    # Whole folders, and no letter that a policy would read as a wildcard: the role may read nothing else.
    dataset: (
        Annotated[str, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/([A-Za-z0-9_.=-]+/)*$")] | None
    ) = None
    volume_gib: Annotated[int, Field(alias="volumeGiB", ge=1, le=16_384)] = 100
    checkpoints: Name = ON_THE_VOLUME

    @field_validator("capacity")
    @classmethod
    def _one_instance(cls, capacity: Capacity) -> Capacity:
        if capacity.target != 1:
            raise ValueError(f"target {capacity.target}, allowed: 1 (a volume is in one place at a time)")
        if not capacity.is_kept:
            raise ValueError("fleetType 'request' is never replenished, allowed: 'maintain'")
        return capacity
