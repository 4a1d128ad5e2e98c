"""The shape of a stack's settings: frozen models that refuse unknown keys and values out of range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from infra import accelerators as catalogue
from infra.schema.base import ContainerImage, Model, Name, Region, Retention, TagKey, TagValue, unique
from infra.schema.capacity import Capacity
from infra.schema.network import Network
from infra.schema.operations import Bucket, Identity, Monitoring, Previews, Repository, Storage
from infra.schema.training import ON_THE_VOLUME, Training

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
    "Training",
)


class Service(Model):
    """GPU workers that serve requests: ``slots_per_gpu`` containers of ``image`` share each GPU.

    Without an image the workers do nothing but report. An instance is ready when all its workers are: at
    their start, or with ``says_ready`` when they say so themselves. An accelerator of another maker than
    NVIDIA has no container toolkit here, and its whole instance counts as one GPU.
    """

    name: Name
    capacity: Capacity
    slots_per_gpu: Annotated[int, Field(ge=1, le=64)] = 1
    drain_seconds: Annotated[int, Field(ge=0, le=120)] = 0
    image: ContainerImage | None = None
    says_ready: bool = False

    @property
    def is_nvidia(self) -> bool:
        """Whether its accelerators are NVIDIA's; a group never mixes makers."""
        return catalogue.lookup(self.capacity.types[0]).family.vendor == "nvidia"

    @property
    def slots(self) -> dict[str, int]:
        """Worker slots by instance type."""
        gpus = {t: catalogue.lookup(t).accelerators if self.is_nvidia else 1 for t in self.capacity.types}
        return {kind: count * self.slots_per_gpu for kind, count in gpus.items()}

    @field_validator("image")
    @classmethod
    def _toolkit_is_nvidias(cls, image: str | None, info: ValidationInfo) -> str | None:
        capacity: Capacity | None = info.data.get("capacity")
        if image is not None and capacity is not None:
            vendor = catalogue.lookup(capacity.types[0]).family.vendor
            if vendor != "nvidia":
                raise ValueError(f"a container on accelerators of {vendor!r}, allowed: on NVIDIA's")
        return image

    @field_validator("says_ready")
    @classmethod
    def _only_an_image_speaks(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("image") is None:
            raise ValueError("true without an image, which would say it, allowed: false")
        return value


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
    training: tuple[Training, ...] = ()
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

    @field_validator("training")
    @classmethod
    def _names_and_places(cls, training: tuple[Training, ...], info: ValidationInfo) -> tuple[Training, ...]:
        services: tuple[Service, ...] = info.data.get("services", ())
        names = [service.name for service in services] + [one.name for one in training]
        unique(names, "services or training jobs")
        if "storage" in info.data:
            files = info.data["storage"].file_system
            places = [ON_THE_VOLUME, *(point.name for point in (files.access_points if files else ()))]
            for one in training:
                if one.checkpoints not in places:
                    raise ValueError(
                        f"checkpoints of {one.name!r} are {one.checkpoints!r}, "
                        f"allowed: {', '.join(map(repr, places))}"
                    )
        return training

    @property
    def capacities(self) -> dict[str, Capacity]:
        """The capacity of each group, services first."""
        of_services = {service.name: service.capacity for service in self.services}
        return of_services | {one.name: one.capacity for one in self.training}

    def warnings(self) -> Iterator[str]:
        """Yield what is allowed and rarely meant, one line each."""
        places = [f"services[{index}]" for index in range(len(self.services))]
        places += [f"training[{index}]" for index in range(len(self.training))]
        for place, capacity in zip(places, self.capacities.values(), strict=True):
            if len(capacity.types) * len(self.network.zones) == 1:
                yield (
                    f"gpu-spot:{place}.capacity.instanceTypes: one type in one zone is a single "
                    "capacity pool: when AWS takes it back, all spot instances go at once"
                )
        if self.network.egress == "none":
            for index in range(len(self.training)):
                yield (
                    f"gpu-spot:training[{index}].repository: with network.egress 'none' it must be reachable "
                    "inside the VPC"
                )
