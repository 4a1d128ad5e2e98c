"""``LaunchInstances``: synchronous launches in one zone, or the reason of the failure.

Auto Scaling guide, "Launch instances synchronously", its note and its limitations; API reference,
LaunchInstances. That more than the maximum is rejected, and that launches raise the desired capacity,
follows SetDesiredCapacity and the retry strategy; no documentation of it was found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from pulumi_on_moto.fixes import Patches, local, set_local
from pulumi_on_moto.fixes.groups.members import on_demand
from pulumi_on_moto.fixes.speedups.cached_responses import changed

RETRY: Final = "retry-with-group-configuration"
_STRATEGIES: Final = ("none", RETRY)
_NONE_LEFT: Final = (
    "We currently do not have sufficient capacity in the Availability Zone you requested. Our system will be "
    "working on provisioning additional capacity."
)


CapacityProvider = Callable[[FakeAutoScalingGroup, str, int], list[Any]]
"""Launches capacity into a group (``members.join``), in a zone; returns moto's instances, if any."""


def offer(backend: AutoScalingBackend, provider: CapacityProvider) -> None:
    """Set the simulated market of launches in one zone; without it no zone has capacity."""
    set_local(backend, "provider", provider)


def _launch_instances(response: AutoScalingResponse) -> ActionResult:
    backend, name = response.autoscaling_backend, response._get_param("AutoScalingGroupName")
    group = backend.autoscaling_groups.get(name)
    if group is None:
        raise ValidationError("AutoScalingGroup name not found - null")
    capacity = response._get_int_param("RequestedCapacity")
    strategy = response._get_param("RetryStrategy", "none")
    zones = response._get_param("AvailabilityZones", [])
    token = response._get_param("ClientToken")
    responses: dict[str, Any] = local(backend, "responses", {})
    if token in responses:
        return ActionResult(responses[token])
    if problem := _problem(group, capacity, zones, strategy):
        raise ValidationError(problem)
    changed()
    zone = zones[0] if zones else group.availability_zones[0]
    provider: CapacityProvider = local(backend, "provider", lambda *_: [])
    launched = provider(group, zone, capacity)
    if launched or strategy == RETRY:
        group.desired_capacity = int(group.desired_capacity or 0) + capacity
    _, percentage = on_demand(group)
    error = {
        "AvailabilityZone": zone,
        "MarketType": "OnDemand" if percentage else "Spot",
        "ErrorCode": "InsufficientInstanceCapacity",
        "ErrorMessage": _NONE_LEFT,
    }
    result = {
        "AutoScalingGroupName": name,
        "ClientToken": token,
        "Instances": [_describe_instance(instance) for instance in launched],
        "Errors": [] if launched else [error],
    }
    if token:
        responses[token] = result
    return ActionResult(result)


def _problem(group: FakeAutoScalingGroup, capacity: int, zones: list[str], strategy: str) -> str | None:
    """Return why Auto Scaling rejects the call, None if it is valid."""
    base, percentage = on_demand(group)
    high = int(group.max_size or 0)
    if strategy not in _STRATEGIES:
        return f"RetryStrategy must be {' or '.join(_STRATEGIES)}, not {strategy!r}"
    if group.get_warm_pool() is not None:
        return "LaunchInstances is not supported for a group with a warm pool"
    if percentage != 100 and (percentage or base):
        return "LaunchInstances takes a mixed instances policy of On-Demand alone or of Spot alone"
    if not zones and len(group.availability_zones) > 1:
        return "a group of several Availability Zones needs one of them"
    if unknown := [zone for zone in zones if zone not in group.availability_zones]:
        return f"Availability Zone {unknown[0]!r} is not one of the group's"
    if int(group.desired_capacity or 0) + capacity > high:
        return f"{capacity} more than {group.desired_capacity} are above max value {high} of the group"
    return None


def _describe_instance(instance: Any) -> dict[str, Any]:
    return {
        "InstanceType": instance.instance_type,
        "MarketType": "OnDemand" if getattr(instance, "lifecycle", None) != "spot" else "Spot",
        "SubnetId": instance.subnet_id,
        "AvailabilityZone": instance.placement.zone,
        "InstanceIds": [instance.id],
    }


PATCHES: Final[Patches] = ((AutoScalingResponse, "launch_instances", _launch_instances),)
