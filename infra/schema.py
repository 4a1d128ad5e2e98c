"""The shape of a stack's settings: frozen models that refuse unknown keys and values out of range.

The order of fields matters where a validator looks at an earlier one.
"""

from __future__ import annotations

import ipaddress
from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from infra import accelerators

Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=24)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=5000)]

Region: TypeAlias = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")]

TagKey: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9+\-=.,_:@]{1,128}$")]
"""What instance metadata can show: no spaces, no slashes (EC2 user guide, "Access tags using IMDS")."""

TagValue: TypeAlias = Annotated[str, Field(max_length=256)]

Retention: TypeAlias = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 3653
]
"""Days that CloudWatch Logs accepts (``PutRetentionPolicy``), the commonly used ones."""

Policy: TypeAlias = Literal["ready-handover"]
"""The policies in ``lambdas.core.policies``; a test holds the two together."""

AllocationStrategy: TypeAlias = Literal[
    "price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized", "lowest-price"
]


class Model(BaseModel):
    """What all settings share: frozen, strict, camelCase in YAML, no unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel, validate_default=True
    )


class Network(Model):
    """The VPC. A zone's letter gives it one of eight fixed slots in ``cidr``: adding a zone moves none."""

    cidr: str
    zones: Annotated[tuple[str, ...], Field(min_length=2, max_length=6)]
    egress: Literal["nat-gateway", "nat-gateway-per-zone"] = "nat-gateway"

    @field_validator("cidr")
    @classmethod
    def _network_address(cls, cidr: str) -> str:
        try:
            prefix = ipaddress.IPv4Network(cidr).prefixlen
        except ValueError as error:
            raise ValueError(f"not an IPv4 network ({error}), allowed: such as 10.20.0.0/16") from None
        if not 16 <= prefix <= 20:
            raise ValueError(f"a /{prefix} network, allowed: /16 to /20")
        return cidr

    @field_validator("zones")
    @classmethod
    def _zones_of_region(cls, zones: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        region = (info.context or {}).get("region", "")
        for zone in zones:
            if region and zone not in {f"{region}{letter}" for letter in "abcdefgh"}:
                raise ValueError(f"{zone!r} is not a zone of {region}, allowed: {region}a to {region}h")
            if zones.count(zone) > 1:
                raise ValueError(f"{zone!r} is listed twice, allowed: each zone once")
        return zones


class Fallback(Model):
    """The on-demand group behind the primary one. ``warm_instances`` stand by, stopped."""

    enabled: bool = True
    warm_instances: Count = 0
    policy: Policy = "ready-handover"
    knobs: dict[str, float] = Field(default_factory=dict)


class Capacity(Model):
    """How many instances of what, and how they are paid for. Counts are instances.

    ``target`` is what is kept up. ``min`` and ``max`` bound it, and ``max`` (by default twice the target)
    bounds primary and fallback together.
    """

    kind: Literal["mixed-asg"]
    target: Count
    min: Count = 0
    fallback: Fallback = Field(default_factory=Fallback)
    max: Annotated[int, Field(ge=1, le=10_000)] | None = None
    on_demand_base: Count = 0
    spot_percentage: Annotated[int, Field(ge=0, le=100)] = 100
    ami: Annotated[str, Field(pattern=r"^(ami-[0-9a-f]{8,17}|/[A-Za-z0-9_./-]+)$")] | None = None
    instance_types: Annotated[tuple[str, ...], Field(min_length=1, max_length=40)]
    allocation_strategy: AllocationStrategy = "price-capacity-optimized"
    max_price: Annotated[Decimal, Field(ge=Decimal("0.001"), le=1000)] | None = None
    root_volume_gib: Annotated[int, Field(alias="rootVolumeGiB", ge=75, le=16_384)] = 125

    @property
    def maximum(self) -> int:
        """The most instances of primary and fallback together."""
        return self.max if self.max is not None else max(1, 2 * self.target)

    @field_validator("min")
    @classmethod
    def _min_below_target(cls, value: int, info: ValidationInfo) -> int:
        if value > info.data.get("target", value):
            raise ValueError(f"{value} is above the target, allowed: 0 to {info.data['target']}")
        return value

    @field_validator("max")
    @classmethod
    def _max_leaves_headroom(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is None or "target" not in info.data or "fallback" not in info.data:
            return value
        # With a fallback, a swap between spot and on-demand holds one instance more for a while.
        least = info.data["target"] + info.data["fallback"].enabled
        if value < least:
            raise ValueError(f"{value} is too little for the target, allowed: at least {least}")
        return value

    @field_validator("on_demand_base")
    @classmethod
    def _base_within_target(cls, value: int, info: ValidationInfo) -> int:
        if value > info.data.get("target", value):
            raise ValueError(f"{value} is above the target, allowed: 0 to {info.data['target']}")
        return value

    @field_validator("instance_types")
    @classmethod
    def _bootable_types(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is listed twice, allowed: each type once")
        if "ami" in info.data:
            accelerators.check_mix(names, info.data["ami"])
        return names


class Service(Model):
    """GPU workers that serve requests. ``slots_per_instance`` workers make an instance ready."""

    name: Name
    capacity: Capacity
    slots_per_instance: Annotated[int, Field(ge=1, le=64)] = 1
    drain_seconds: Annotated[int, Field(ge=0, le=120)] = 0


class Settings(Model):
    """Everything that a stack file says under ``gpu-spot:``, and the region."""

    region: Region
    network: Network
    services: tuple[Service, ...]
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
        names = [service.name for service in services]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two services are named {name!r}, allowed: each name once")
        return services
