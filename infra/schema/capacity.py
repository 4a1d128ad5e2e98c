"""Settings of ``capacity``, the same for services, jobs and shared hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from math import ceil
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts.group import policies
from contracts.group.config import GroupKind
from infra.catalogue import accelerators as catalogue
from infra.schema.base import FROM_TEXT, Count, Image, Model
from infra.schema.requirements import InstanceRequirements, is_nvidia
from infra.schema.reservation import Reservation

AllocationStrategy: TypeAlias = Literal[
    "price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized", "lowest-price"
]
Unit: TypeAlias = Literal["instances", "gpus"]
"""The unit of capacities."""

MAX_DRILLED_INSTANCES: Final = 5
"""Spot Instances that one FIS experiment interrupts if tags select them.

Source: default of the FIS quota "Target SpotInstances for aws:ec2:send-spot-instance-interruptions"
(L-F3F4B54A); an account may have a higher one.
"""


class Fallback(Model):
    """The On-Demand Auto Scaling group behind the primary group."""

    enabled: bool = True
    """Whether there is an On-Demand group."""
    reservation: Reservation | None = None
    """On-Demand Capacity Reservations, which are paid for in any case. The fallback group keeps instances in
    them, in place of Spot."""
    warm_instances: Count = 0
    """Size of the warm pool of stopped instances. Instances of the fallback that are in service count as part
    of it. Each costs its root volume, some $10 a month; without one an On-Demand start takes three minutes in
    place of one. A pool of the target's Spot share pays off from ``shortageCost`` 2 on."""
    policy: str = policies.DEFAULT
    """The capacity policy, which computes how much On-Demand capacity to run. `python -m research.replay
    --policy all` compares the policies."""
    policy_parameters: dict[str, Annotated[float, FROM_TEXT]] = Field(default_factory=dict)
    """Parameters of the policy, such as ``shortageCost``: the price of one worker-minute of shortage, in
    On-Demand minutes."""

    @field_validator("warm_instances")
    @classmethod
    def _warm_only_if_enabled(cls, count: int, info: ValidationInfo) -> int:
        if count and info.data.get("enabled") is False:
            raise ValueError(f"must be 0 if enabled is false, not {count}")
        return count

    @field_validator("reservation")
    @classmethod
    def _reserved_only_if_enabled(
        cls, reservation: Reservation | None, info: ValidationInfo
    ) -> Reservation | None:
        if reservation is not None and info.data.get("enabled") is False:
            raise ValueError(
                f"is {reservation.source}, but enabled is false; remove the reservation, or enable "
                "the fallback"
            )
        return reservation

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        policies.check(name)
        return name

    @field_validator("policy_parameters")
    @classmethod
    def _known_parameters(cls, parameters: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        if "policy" in info.data:
            policies.check(info.data["policy"], parameters)
        return parameters


def _weights(unit: Unit | None, types: Iterable[str]) -> dict[str, int]:
    return {name: catalogue.lookup(name).accelerators if unit == "gpus" else 1 for name in types}


def _default_fallback(values: dict[str, Any]) -> Fallback:
    return Fallback(enabled=values.get("fleet_type") != "request")


class Capacity(Model):
    """Capacity of a group: how many instances of which types, and how they are bought.

    ``target``, ``max`` and ``onDemandBase`` are in ``unit``: instances or GPUs. With GPUs a group may mix
    types of different sizes: an instance with four GPUs counts as four. AWS launches whole instances, so the
    group may exceed its target by the GPUs of the largest type less one.
    """

    kind: GroupKind
    """Kind of the primary group: an Auto Scaling group with mixed instances, or a Spot Fleet."""
    fleet_type: Literal["maintain", "request"] = "maintain"
    """Request type of a Spot Fleet. With ``request`` the fleet launches its capacity once; neither AWS nor
    the controller replaces lost instances."""
    target: Count
    """Capacity that the controller keeps ready."""
    fallback: Fallback = Field(default_factory=_default_fallback)
    """The On-Demand group behind the primary group."""
    on_demand_base: Count = 0
    """Part of the target that is always On-Demand."""
    spot_percentage: Annotated[int, Field(ge=0, le=100)] = 100
    """Percentage of Spot above ``onDemandBase``; the rest is On-Demand, rounded up."""
    on_demand_ceiling: Count | None = None
    """On-Demand capacity above which the On-Demand alarm counts time (``monitoring.onDemandMinutes``).
    Default: the On-Demand part of the target plus half of its Spot part."""
    ami: Image | None = None
    """Machine image of all types: an AMI ID, or the path of an SSM parameter that holds one. Default: AWS's
    Deep Learning Base AMI."""
    amis: dict[str, Image] = Field(default_factory=dict)
    """Machine images by instance family, such as ``g5g``; they take precedence over ``ami``."""
    instance_types: Annotated[tuple[str, ...], Field(min_length=1, max_length=40)] | None = None
    """Instance types that may be launched, in order of preference."""
    instance_requirements: InstanceRequirements | None = None
    """Requirements that select the instance types; used instead of ``instanceTypes``."""
    unit: Unit = "instances"
    """Unit of ``target``, ``max`` and ``onDemandBase``."""
    max: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Maximum capacity of primary and fallback group together. Default: twice the target."""
    allocation_strategy: AllocationStrategy = "price-capacity-optimized"
    """How AWS chooses capacity pools. The values are those of Auto Scaling, for a Spot Fleet as well."""
    max_price: Annotated[Decimal, Field(ge=Decimal("0.001"), le=1000)] | None = None
    """Maximum price of a Spot Instance in US dollars per hour; with ``unit: gpus`` of each of its GPUs.
    Default: the On-Demand price."""
    root_volume_gib: Annotated[int, Field(alias="rootVolumeGiB", ge=75, le=16_384)] = 125
    """Size of each instance's root volume in GiB."""
    root_volume_throughput_mib: Annotated[int, Field(ge=125, le=750)] | None = None
    """Throughput of each instance's root volume in MiB/s, with 3,000 operations per second. Default: gp3's
    125, with which an image of 15 GB takes minutes; on Kubernetes 250."""
    drill: Annotated[int, Field(ge=0, le=MAX_DRILLED_INSTANCES)] = 0
    """Number of Spot Instances that `gpu-spot drill` interrupts at once through AWS FIS. 0 disables drills
    for the group."""

    @property
    def maximum(self) -> int:
        """Maximum capacity of primary and fallback group together."""
        return self.max if self.max is not None else max(1, 2 * self.target)

    @property
    def max_target(self) -> int:
        """Maximum target. With a fallback, one more instance runs while Spot and On-Demand are exchanged."""
        return self.maximum - (max(self.weights.values()) if self.fallback.enabled else 0)

    @property
    def is_managed(self) -> bool:
        """Whether the controller keeps the group at its target."""
        return self.fleet_type == "maintain"

    @property
    def is_fleet(self) -> bool:
        """Whether the primary group is a Spot Fleet, which has no lifecycle hooks."""
        return self.kind == "spot-fleet"

    @property
    def types(self) -> tuple[str, ...]:
        """Instance types that may be launched, in order of preference."""
        if self.instance_requirements is not None:
            return self.instance_requirements.matching_types(self.ami, self.amis)
        return self.instance_types or ()

    @property
    def weights(self) -> Mapping[str, int]:
        """Capacity of one instance, by its type."""
        return _weights(self.unit, self.types)

    @property
    def warm_instances(self) -> int:
        """Size of the warm pool, with the fallback's instances that are in service."""
        return self.fallback.warm_instances

    @property
    def is_nvidia(self) -> bool:
        """Whether the accelerators are NVIDIA GPUs; a group never mixes vendors."""
        return is_nvidia(catalogue.lookup(self.types[0]))

    @property
    def architecture(self) -> catalogue.Architecture:
        """CPU architecture; a group never mixes two."""
        return catalogue.lookup(self.types[0]).family.architecture

    @property
    def images(self) -> Mapping[str, tuple[str, ...]]:
        """Instance types by machine image (AMI ID or parameter path), in order of preference."""
        images: dict[str, tuple[str, ...]] = {}
        for name in self.types:
            image = catalogue.image(name, self.ami, self.amis)
            images[image] = (*images.get(image, ()), name)
        return images

    @property
    def ceiling(self) -> int:
        """On-Demand capacity above which the On-Demand alarm counts time."""
        if self.on_demand_ceiling is not None:
            return self.on_demand_ceiling
        above_base = max(0, self.target - self.on_demand_base)
        spot = above_base * self.spot_percentage // 100
        return self.target - spot + ceil(spot / 2)

    @field_validator("fleet_type")
    @classmethod
    def _only_of_a_fleet(cls, value: str, info: ValidationInfo) -> str:
        if value == "request" and info.data.get("kind") == "mixed-asg":
            raise ValueError("must be 'maintain' with kind 'mixed-asg', not 'request'")
        return value

    @field_validator("target")
    @classmethod
    def _not_zero_for_a_request(cls, value: int, info: ValidationInfo) -> int:
        if value == 0 and info.data.get("fleet_type") == "request":
            raise ValueError("must be at least 1 with fleetType 'request', not 0")
        return value

    @field_validator("fallback")
    @classmethod
    def _no_fallback_of_a_request(cls, fallback: Fallback, info: ValidationInfo) -> Fallback:
        if fallback.enabled and info.data.get("fleet_type") == "request":
            raise ValueError("must have enabled: false with fleetType 'request', which has no fallback")
        return fallback

    @field_validator("max")
    @classmethod
    def _max_leaves_headroom(cls, value: int | None, info: ValidationInfo) -> int | None:
        data = info.data
        if "target" not in data or "fallback" not in data:
            return value
        maximum = value if value is not None else max(1, 2 * data["target"])
        # With a fallback, one more instance runs while Spot and On-Demand are exchanged.
        minimum = data["target"]
        if data["fallback"].enabled:
            minimum += max(_weights(data.get("unit"), data.get("instance_types") or ()).values(), default=1)
        if maximum < minimum:
            raise ValueError(f"must be at least {minimum} for this target, not {maximum}")
        warm = data["fallback"].warm_instances
        if warm > maximum:
            raise ValueError(f"must be at least {warm}, the value of fallback.warmInstances, not {maximum}")
        return value

    @field_validator("on_demand_base")
    @classmethod
    def _base_within_target(cls, value: int, info: ValidationInfo) -> int:
        if value > info.data.get("target", value):
            raise ValueError(f"must be from 0 to the target ({info.data['target']}), not {value}")
        return value

    @field_validator("drill")
    @classmethod
    def _only_managed_groups(cls, count: int, info: ValidationInfo) -> int:
        if count and info.data.get("fleet_type") == "request":
            raise ValueError(f"must be 0 with fleetType 'request', which replaces no instances, not {count}")
        return count

    @field_validator("amis")
    @classmethod
    def _images_of_families(cls, amis: dict[str, str]) -> dict[str, str]:
        for family in amis:
            if family not in catalogue.FAMILIES:
                families = ", ".join(catalogue.FAMILIES)
                raise ValueError(f"{family!r} is not a known family; use {families}")
        return amis

    @field_validator("instance_types")
    @classmethod
    def _bootable_types(cls, names: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        for name in names or ():
            if (names or ()).count(name) > 1:
                raise ValueError(f"{name!r} is listed twice; list each type once")
        if names and "ami" in info.data and "amis" in info.data:
            catalogue.check_mix(names, info.data["ami"], info.data["amis"])
        return names

    @field_validator("instance_requirements")
    @classmethod
    def _types_or_requirements(
        cls, requirements: InstanceRequirements | None, info: ValidationInfo
    ) -> InstanceRequirements | None:
        if not {"instance_types", "ami", "amis"} <= info.data.keys():
            return requirements
        if (requirements is None) == (info.data["instance_types"] is None):
            raise ValueError(
                "instanceTypes and instanceRequirements are both missing; set one of them"
                if requirements is None
                else "is set together with instanceTypes; remove one of them"
            )
        if requirements is not None and not requirements.matching_types(info.data["ami"], info.data["amis"]):
            raise ValueError("no known accelerator type matches; relax the requirements until one does")
        return requirements

    @field_validator("unit")
    @classmethod
    def _types_have_weights(cls, unit: str, info: ValidationInfo) -> str:
        if unit == "instances":
            return unit
        if info.data.get("instance_requirements") is not None:
            # An override has one weight for all types that meet its requirements.
            raise ValueError(
                f"must be 'instances' with instanceRequirements, not {unit!r}; list instanceTypes to "
                "count in other units"
            )
        fallback = info.data.get("fallback")
        if fallback is not None and fallback.warm_instances:
            # Warm pools count instances, without weights. Source: Auto Scaling API reference, "PutWarmPool".
            raise ValueError(
                f"must be 'instances' with fallback.warmInstances, not {unit!r}; or set "
                "fallback.warmInstances to 0"
            )
        return unit

    @field_validator("allocation_strategy")
    @classmethod
    def _order_needs_types(cls, value: str, info: ValidationInfo) -> str:
        if value == "capacity-optimized-prioritized" and info.data.get("instance_requirements"):
            raise ValueError(
                f"cannot be {value!r} with instanceRequirements, which have no order; choose another strategy"
            )
        return value
