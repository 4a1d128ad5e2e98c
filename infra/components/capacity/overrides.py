"""Launch template overrides of Auto Scaling groups and Spot Fleets: instance types or requirements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from infra.components.capacity.launch_template import Launchable
from infra.schema.capacity import Capacity
from infra.schema.requirements import InstanceRequirements, NumberRange
from infra.schema.reservation import Reservation

FLEET_STRATEGIES: Final = {
    "price-capacity-optimized": "priceCapacityOptimized",
    "capacity-optimized": "capacityOptimized",
    "capacity-optimized-prioritized": "capacityOptimizedPrioritized",
    "lowest-price": "lowestPrice",
}
"""Spot Fleet allocation strategies by those of the settings, which are Auto Scaling's."""

_PRICE_PROTECTION: Final = 100
"""Percent above the cheapest matching type; AWS's default for On-Demand is 20, which leaves one type."""

_NO_LIMIT: Final = 100_000
"""Upper bound of an open range, more than any instance has. The provider would send 0 for a fleet
(terraform-provider-aws, ``expandMemoryMiB`` and similar functions)."""


def auto_scaling_overrides(capacity: Capacity, launchables: Sequence[Launchable]) -> list[Any]:
    """Return the overrides of a mixed instances policy whose own template is that of the first launchable."""
    overrides: list[Any] = []
    for launchable in launchables:
        uses_group_template = launchable is launchables[0]
        specification = {"launch_template_id": launchable.template.id, "version": launchable.template.version}
        overrides += [
            aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(
                launch_template_specification=None if uses_group_template else specification, **choice
            )
            for choice in _choices(capacity, launchable, str)
        ]
    return overrides


def fleet_configs(
    capacity: Capacity, launchables: Sequence[Launchable], subnet_ids: Sequence[pulumi.Input[str]]
) -> list[Any]:
    """Return a fleet's launch template configurations: each choice in each subnet, by priority."""
    # From 1: the provider omits a priority of 0, which would make the first choice the last.
    configs, priority = [], 1
    for launchable in launchables:
        overrides = []
        for choice in _choices(capacity, launchable, float):
            overrides += [
                aws.ec2.SpotFleetRequestLaunchTemplateConfigOverrideArgs(
                    subnet_id=subnet,
                    # AWS rejects a priority together with requirements.
                    priority=priority if "instance_type" in choice else None,
                    **choice,
                )
                for subnet in subnet_ids
            ]
            priority += 1
        configs.append(
            aws.ec2.SpotFleetRequestLaunchTemplateConfigArgs(
                launch_template_specification=aws.ec2.SpotFleetRequestLaunchTemplateConfigLaunchTemplateSpecificationArgs(
                    id=launchable.template.id,
                    # With a number each new version would replace the fleet and terminate its instances.
                    version="$Latest",
                ),
                overrides=overrides,
            )
        )
    return configs


def reservation_first(
    reservation: Reservation | None,
) -> aws.autoscaling.GroupCapacityReservationSpecificationArgs | None:
    """Return how a group launches: into a reservation first, then On-Demand.

    Source: EC2 Auto Scaling guide, "Target Capacity Reservations from your Auto Scaling group".
    """
    if reservation is None:
        return None
    target = {
        "capacity_reservation_ids" if reservation.is_single else "capacity_reservation_resource_group_arns": [
            reservation.source
        ]
    }
    return aws.autoscaling.GroupCapacityReservationSpecificationArgs(
        capacity_reservation_preference="capacity-reservations-first",
        capacity_reservation_target=aws.autoscaling.GroupCapacityReservationSpecificationCapacityReservationTargetArgs(
            **target
        ),
    )


def _choices(
    capacity: Capacity, launchable: Launchable, weight: Callable[[int], str | float]
) -> list[dict[str, Any]]:
    """Return a choice for each type, or one for the requirements; ``weight`` converts a weight."""
    if capacity.instance_requirements is not None:
        return [{"instance_requirements": _requirements(capacity.instance_requirements, launchable.types)}]
    if capacity.unit == "instances":
        return [{"instance_type": name} for name in launchable.types]
    # For all types: AWS rejects a group in which only some have a weight (API, ``LaunchTemplateOverrides``).
    weights = capacity.weights
    return [{"instance_type": name, "weighted_capacity": weight(weights[name])} for name in launchable.types]


def _requirements(requirements: InstanceRequirements, types: tuple[str, ...]) -> dict[str, Any]:
    return {
        "vcpu_count": _bounds(requirements.vcpus),
        "memory_mib": _bounds(requirements.memory_gib, scale=1024),
        "accelerator_types": ["gpu"],
        "accelerator_manufacturers": ["nvidia"],
        "accelerator_count": _bounds(requirements.accelerators),
        # Types that the image boots, from the catalogue.
        "allowed_instance_types": list(types),
        "on_demand_max_price_percentage_over_lowest_price": _PRICE_PROTECTION,
    }


def _bounds(bounds: NumberRange, scale: int = 1) -> dict[str, int]:
    return {"min": bounds.min * scale, "max": (bounds.max or _NO_LIMIT) * scale}
