"""The shape of ``capacity``: one shape wherever it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from math import ceil
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts.group import policies, warm_pool
from contracts.group.config import GroupKind
from infra.catalogue import accelerators as catalogue
from infra.schema.base import Count, Image, Model, Number
from infra.schema.requirements import InstanceRequirements, is_nvidia
from infra.schema.reservation import Reservation

AllocationStrategy: TypeAlias = Literal[
    "price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized", "lowest-price"
]
Unit: TypeAlias = Literal["instances", "gpus"]
"""What capacities count."""

MOST_DRILLED: Final = 5
"""Spot instances that one experiment takes where tags choose them: the default of the FIS quota "Target
SpotInstances for aws:ec2:send-spot-instance-interruptions" (L-F3F4B54A), which an account may have raised."""


class Fallback(Model):
    """The on-demand group behind the primary one."""

    enabled: bool = True
    """Whether there is an on-demand group at all."""
    reservation: Reservation | None = None
    """What somebody pays for anyway: it is held in place of spot."""
    warm_instances: Count | None = None
    """How many stand by, stopped, less those that serve; left out, as many as spot can lose where
    ``shortageCost`` makes it worth it."""
    policy: str = policies.DEFAULT
    """The rule that says how much on-demand is wanted; `gpu-spot replay --policy all` compares them."""
    knobs: dict[str, Number] = Field(default_factory=dict)
    """The rule's numbers, such as ``shortageCost``."""

    @field_validator("warm_instances")
    @classmethod
    def _warm_only_if_enabled(cls, count: int | None, info: ValidationInfo) -> int | None:
        if count and info.data.get("enabled") is False:
            raise ValueError(f"{count} without a fallback, allowed: 0 where enabled is false")
        return count

    @field_validator("reservation")
    @classmethod
    def _reserved_only_if_enabled(cls, given: Reservation | None, info: ValidationInfo) -> Reservation | None:
        if given is not None and info.data.get("enabled") is False:
            raise ValueError(f"{given.source} without a fallback, allowed: none where enabled is false")
        return given

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, name: str) -> str:
        policies.check(name)
        return name

    @field_validator("knobs")
    @classmethod
    def _known_knobs(cls, knobs: dict[str, float], info: ValidationInfo) -> dict[str, float]:
        if "policy" in info.data:
            policies.check(info.data["policy"], knobs)
        return knobs


def _weights(unit: Unit | None, types: Iterable[str]) -> dict[str, int]:
    return {name: catalogue.lookup(name).accelerators if unit == "gpus" else 1 for name in types}


def _default_fallback(given: dict[str, Any]) -> Fallback:
    return Fallback(enabled=given.get("fleet_type") != "request")


class Capacity(Model):
    """How much of what, and how it is paid for. Counts are in ``unit``: instances, or the GPUs in them.

    With GPUs a group may mix types of several sizes: one with four stands for four with one, and AWS, which
    launches whole instances, may hold up to the largest type's less one more than was asked for.
    """

    kind: GroupKind
    """An Auto Scaling group with several types, or a Spot Fleet."""
    fleet_type: Literal["maintain", "request"] = "maintain"
    """With ``request`` a fleet asks once: nothing replaces what it loses, nothing moves its capacity."""
    target: Count
    """What is kept up."""
    fallback: Fallback = Field(default_factory=_default_fallback)
    """The on-demand group behind the primary one."""
    on_demand_base: Count = 0
    """What of the target is always on-demand."""
    spot_percentage: Annotated[int, Field(ge=0, le=100)] = 100
    """Of what is above the base; the rest is on-demand."""
    on_demand_ceiling: Count | None = None
    """For the alarm: how much on-demand is too much for long. Left out, what the mix itself asks for and half
    of what should be spot."""
    ami: Image | None = None
    """The image of every type: an AMI id, or the path of a parameter that holds one."""
    amis: dict[str, Image] = Field(default_factory=dict)
    """Images by instance family, where they differ."""
    instance_types: Annotated[tuple[str, ...], Field(min_length=1, max_length=40)] | None = None
    """The types that may be started, the first choice first."""
    instance_requirements: InstanceRequirements | None = None
    """What types must have, in place of their names."""
    unit: Unit = "instances"
    """What ``target``, ``max`` and ``onDemandBase`` count."""
    max: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """The most of primary and fallback together; left out, twice the target."""
    allocation_strategy: AllocationStrategy = "price-capacity-optimized"
    """How AWS chooses among pools, in the group's words for the fleet, too."""
    max_price: Annotated[Decimal, Field(ge=Decimal("0.001"), le=1000)] | None = None
    """The most for an hour of one spot instance, in US dollars; left out, the on-demand price."""
    root_volume_gib: Annotated[int, Field(alias="rootVolumeGiB", ge=75, le=16_384)] = 125
    """GiB of each instance's root volume."""
    drill: Annotated[int, Field(ge=0, le=MOST_DRILLED)] = 0
    """How many of its spot instances `gpu-spot drill` takes at once, by AWS FIS; 0: it cannot be drilled."""

    @property
    def maximum(self) -> int:
        """The most of primary and fallback together."""
        return self.max if self.max is not None else max(1, 2 * self.target)

    @property
    def most_target(self) -> int:
        """The highest target: with a fallback, a swap of spot for on-demand holds one more for a while."""
        return self.maximum - (max(self.weights.values()) if self.fallback.enabled else 0)

    @property
    def is_kept(self) -> bool:
        """Whether the controller keeps it at its target."""
        return self.fleet_type == "maintain"

    @property
    def is_fleet(self) -> bool:
        """Whether a Spot Fleet is the primary group, which has no lifecycle hooks; else Auto Scaling is."""
        return self.kind == "spot-fleet"

    @property
    def types(self) -> tuple[str, ...]:
        """The instance types that may be started, the first choice first."""
        if self.instance_requirements is not None:
            return self.instance_requirements.matching(self.ami, self.amis)
        return self.instance_types or ()

    @property
    def weights(self) -> Mapping[str, int]:
        """For how much an instance of a type counts."""
        return _weights(self.unit, self.types)

    @property
    def warm_instances(self) -> int:
        """How many instances stand by, stopped, or serve in the fallback."""
        fallback = self.fallback
        if not fallback.enabled or self.unit != "instances":
            return 0
        if fallback.warm_instances is not None:
            return fallback.warm_instances
        worth = policies.shortage_cost(fallback.policy, fallback.knobs)
        return warm_pool.size(self.target, self.on_demand_base, self.spot_percentage, worth)

    @property
    def is_nvidia(self) -> bool:
        """Whether its accelerators are NVIDIA's; a group never mixes makers."""
        return is_nvidia(catalogue.lookup(self.types[0]))

    @property
    def architecture(self) -> catalogue.Architecture:
        """Of its processors; a group never mixes two."""
        return catalogue.lookup(self.types[0]).family.architecture

    @property
    def images(self) -> Mapping[str, tuple[str, ...]]:
        """Instance types by the image that boots them (AMI id or parameter path), the first choice first."""
        images: dict[str, tuple[str, ...]] = {}
        for name in self.types:
            image = catalogue.image(name, self.ami, self.amis)
            images[image] = (*images.get(image, ()), name)
        return images

    @property
    def ceiling(self) -> int:
        """The alarm's ceiling: by default what the mix itself asks for, and half of what should be spot."""
        if self.on_demand_ceiling is not None:
            return self.on_demand_ceiling
        above_base = max(0, self.target - self.on_demand_base)
        spot = above_base * self.spot_percentage // 100
        return self.target - spot + ceil(spot / 2)

    @field_validator("fleet_type")
    @classmethod
    def _only_of_a_fleet(cls, value: str, info: ValidationInfo) -> str:
        if value == "request" and info.data.get("kind") == "mixed-asg":
            raise ValueError("'request' is for a fleet, allowed with kind 'mixed-asg': 'maintain'")
        return value

    @field_validator("target")
    @classmethod
    def _asks_for_something(cls, value: int, info: ValidationInfo) -> int:
        if value == 0 and info.data.get("fleet_type") == "request":
            raise ValueError("0 with fleetType 'request', allowed: at least 1")
        return value

    @field_validator("fallback")
    @classmethod
    def _no_fallback_of_a_request(cls, fallback: Fallback, info: ValidationInfo) -> Fallback:
        if fallback.enabled and info.data.get("fleet_type") == "request":
            raise ValueError("a fleet of type 'request' is never replenished, allowed: enabled: false")
        return fallback

    @field_validator("max")
    @classmethod
    def _max_leaves_headroom(cls, value: int | None, info: ValidationInfo) -> int | None:
        given = info.data
        if "target" not in given or "fallback" not in given:
            return value
        most = value if value is not None else max(1, 2 * given["target"])
        # With a fallback, a swap between spot and on-demand holds one instance more for a while.
        least = given["target"]
        if given["fallback"].enabled:
            least += max(_weights(given.get("unit"), given.get("instance_types") or ()).values(), default=1)
        if most < least:
            raise ValueError(f"{most} is too little for the target, allowed: at least {least}")
        warm = given["fallback"].warm_instances or 0
        if warm > most:
            raise ValueError(f"{most} is less than fallback.warmInstances, allowed: at least {warm}")
        return value

    @field_validator("on_demand_base")
    @classmethod
    def _base_within_target(cls, value: int, info: ValidationInfo) -> int:
        if value > info.data.get("target", value):
            raise ValueError(f"{value} is above the target, allowed: 0 to {info.data['target']}")
        return value

    @field_validator("spot_percentage")
    @classmethod
    def _fleets_share_is_its_base(cls, value: int, info: ValidationInfo) -> int:
        if value != 100 and info.data.get("kind") == "spot-fleet":
            raise ValueError(f"{value} with kind 'spot-fleet', allowed: 100 (use onDemandBase)")
        return value

    @field_validator("drill")
    @classmethod
    def _only_what_is_kept(cls, count: int, info: ValidationInfo) -> int:
        if count and info.data.get("fleet_type") == "request":
            raise ValueError(f"{count} with fleetType 'request', which replaces nobody, allowed: 0")
        return count

    @field_validator("amis")
    @classmethod
    def _images_of_families(cls, amis: dict[str, str]) -> dict[str, str]:
        for family in amis:
            if family not in catalogue.FAMILIES:
                known = ", ".join(catalogue.FAMILIES)
                raise ValueError(f"{family!r} is not a known family, allowed: {known}")
        return amis

    @field_validator("instance_types")
    @classmethod
    def _bootable_types(cls, names: tuple[str, ...] | None, info: ValidationInfo) -> tuple[str, ...] | None:
        for name in names or ():
            if (names or ()).count(name) > 1:
                raise ValueError(f"{name!r} is listed twice, allowed: each type once")
        if names and "ami" in info.data and "amis" in info.data:
            catalogue.check_mix(names, info.data["ami"], info.data["amis"])
        return names

    @field_validator("instance_requirements")
    @classmethod
    def _types_one_way(
        cls, wanted: InstanceRequirements | None, info: ValidationInfo
    ) -> InstanceRequirements | None:
        if not {"instance_types", "ami", "amis"} <= info.data.keys():
            return wanted
        if (wanted is None) == (info.data["instance_types"] is None):
            given = "neither" if wanted is None else "both"
            raise ValueError(f"{given} of instanceTypes and instanceRequirements, allowed: one of the two")
        if wanted is not None and not wanted.matching(info.data["ami"], info.data["amis"]):
            raise ValueError("no known accelerator type matches, allowed: what leaves at least one")
        return wanted

    @field_validator("unit")
    @classmethod
    def _types_have_weights(cls, unit: str, info: ValidationInfo) -> str:
        if unit == "instances":
            return unit
        if info.data.get("instance_requirements") is not None:
            # An override has one weight, for whatever type meets its requirements.
            raise ValueError(f"{unit!r} with instanceRequirements, allowed: with instanceTypes")
        fallback = info.data.get("fallback")
        if fallback is not None and fallback.warm_instances:
            # Auto Scaling's reference counts pools in instances, and says nothing of weights ("PutWarmPool").
            raise ValueError(f"{unit!r} with fallback.warmInstances, allowed: with 0 of them")
        return unit

    @field_validator("allocation_strategy")
    @classmethod
    def _order_needs_types(cls, value: str, info: ValidationInfo) -> str:
        if value == "capacity-optimized-prioritized" and info.data.get("instance_requirements"):
            raise ValueError(f"{value!r} needs an order, allowed with instanceRequirements: the others")
        return value
