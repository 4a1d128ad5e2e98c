"""Instance types and requirements in the words of Auto Scaling groups and Spot Fleets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from infra.components.capacity.launch_template import Launchable
from infra.schema.capacity import Capacity
from infra.schema.requirements import InstanceRequirements, Range
from infra.schema.reservation import Reservation

FLEET_STRATEGIES: Final = {
    "price-capacity-optimized": "priceCapacityOptimized",
    "capacity-optimized": "capacityOptimized",
    "capacity-optimized-prioritized": "capacityOptimizedPrioritized",
    "lowest-price": "lowestPrice",
}
"""The fleet's word for each allocation strategy of the settings, whose words are Auto Scaling's."""

_PRICE_PROTECTION: Final = 100
"""Per cent above the cheapest matching type; for on-demand AWS's default is 20, which leaves one type."""

_NO_LIMIT: Final = 100_000
"""In place of a range's open end, which the provider sends for a fleet as 0 (terraform-provider-aws,
``expandMemoryMiB`` and its neighbours). More than any instance has."""


def of_group(capacity: Capacity, launchables: Sequence[Launchable]) -> list[Any]:
    """Return a mixed-instances group's overrides; its own template is that of the first launchable."""
    overrides: list[Any] = []
    for launchable in launchables:
        own = launchable is launchables[0]
        specification = {
            "launch_template_id": launchable.template.id,
            "version": launchable.template.version,
        }
        overrides += [
            aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(
                launch_template_specification=None if own else specification, **choice
            )
            for choice in _choices(capacity, launchable, str)
        ]
    return overrides


def of_fleet(
    capacity: Capacity, launchables: Sequence[Launchable], subnet_ids: Sequence[pulumi.Input[str]]
) -> list[Any]:
    """Return a fleet's launch template configurations: every choice in every subnet, in order of choice."""
    # From 1: the provider takes 0 for "not given", and then the first choice is the last.
    configs, priority = [], 1
    for launchable in launchables:
        overrides = []
        for choice in _choices(capacity, launchable, float):
            overrides += [
                aws.ec2.SpotFleetRequestLaunchTemplateConfigOverrideArgs(
                    subnet_id=subnet,
                    # Only an order among types means something; AWS refuses it beside requirements.
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
                    # A number would replace the fleet, and end its instances, with every new version.
                    version="$Latest",
                ),
                overrides=overrides,
            )
        )
    return configs


def reserved_first(
    reservation: Reservation | None,
) -> aws.autoscaling.GroupCapacityReservationSpecificationArgs | None:
    """Return how a group launches into a reservation first, and beyond it on-demand.

    Source: EC2 Auto Scaling guide, "Target Capacity Reservations from your Auto Scaling group".
    """
    if reservation is None:
        return None
    target = {
        "capacity_reservation_ids" if reservation.is_one else "capacity_reservation_resource_group_arns": [
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
    """Return one choice for each type, or one for the requirements; a weight as ``weight`` spells it."""
    if capacity.instance_requirements is not None:
        return [{"instance_requirements": _requirements(capacity.instance_requirements, launchable.types)}]
    if capacity.unit == "instances":
        return [{"instance_type": name} for name in launchable.types]
    # All or none: AWS refuses a group in which only some types have one (API, ``LaunchTemplateOverrides``).
    weights = capacity.weights
    return [{"instance_type": name, "weighted_capacity": weight(weights[name])} for name in launchable.types]


def _requirements(wanted: InstanceRequirements, types: tuple[str, ...]) -> dict[str, Any]:
    return {
        "vcpu_count": _bounds(wanted.vcpus),
        "memory_mib": _bounds(wanted.memory_gib, scale=1024),
        "accelerator_types": ["gpu"],
        "accelerator_manufacturers": ["nvidia"],
        "accelerator_count": _bounds(wanted.accelerators),
        # What the catalogue knows to match, so that AWS takes nothing that the image cannot boot.
        "allowed_instance_types": list(types),
        "on_demand_max_price_percentage_over_lowest_price": _PRICE_PROTECTION,
    }


def _bounds(wanted: Range, scale: int = 1) -> dict[str, int]:
    return {"min": wanted.min * scale, "max": (wanted.max or _NO_LIMIT) * scale}
