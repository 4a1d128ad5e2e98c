"""The shape of a stack's settings: frozen models that refuse unknown keys and values out of range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, field_validator

from infra.schema.base import Model, Name, Region, Retention, TagKey, TagValue, unique
from infra.schema.capacity import Capacity
from infra.schema.network import Network
from infra.schema.operations import Bucket, Identity, Monitoring, Previews, Repository, Storage

__all__ = (
    "Bucket",
    "Capacity",
    "Identity",
    "Monitoring",
    "Network",
    "Previews",
    "Repository",
    "Service",
    "Settings",
    "Storage",
)


class Service(Model):
    """GPU workers that serve requests. ``slots_per_instance`` workers make an instance ready."""

    name: Name
    capacity: Capacity
    slots_per_instance: Annotated[int, Field(ge=1, le=64)] = 1
    drain_seconds: Annotated[int, Field(ge=0, le=120)] = 0


class Settings(Model):
    """Everything that a stack file says under ``gpu-spot:``, and the region.

    With ``protect`` the engine refuses to delete what holds data, until a person lifts the protection.
    """

    region: Region
    network: Network
    services: tuple[Service, ...]
    storage: Storage = Field(default_factory=Storage)
    monitoring: Monitoring = Field(default_factory=Monitoring)
    identity: Identity = Field(default_factory=Identity)
    protect: bool = False
    tags: dict[TagKey, TagValue] = Field(default_factory=dict)
    log_retention_days: Retention = 30

    @field_validator("tags")
    @classmethod
    def _tags_not_reserved(cls, tags: dict[str, str]) -> dict[str, str]:
        for key in tags:
            if key == "Name" or key.startswith(("aws:", "gpu-spot:")):
                raise ValueError(f"tag {key!r} is reserved, allowed: keys but Name, aws:* and gpu-spot:*")
        return tags

    @field_validator("services")
    @classmethod
    def _unique_names(cls, services: tuple[Service, ...]) -> tuple[Service, ...]:
        unique([service.name for service in services], "services")
        return services

    def warnings(self) -> Iterator[str]:
        """Yield what is allowed and rarely meant, one line each."""
        for index, service in enumerate(self.services):
            pools = len(service.capacity.types) * len(self.network.zones)
            if pools == 1:
                yield (
                    f"gpu-spot:services[{index}].capacity.instanceTypes: one type in one zone is a single "
                    "capacity pool: when AWS takes it back, all spot instances go at once"
                )
