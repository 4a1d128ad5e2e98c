"""Desired capacity of a group, its bounds, and the end of a named member. ``members`` handles launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup

from pulumi_on_moto.fixes import Patches
from pulumi_on_moto.fixes.groups.leaving import end
from pulumi_on_moto.fixes.groups.members import member
from pulumi_on_moto.fixes.groups.scale_in import shrink
from pulumi_on_moto.fixes.groups.weights import weight
from pulumi_on_moto.fixes.speedups.cached_responses import changed


def _set_desired_capacity(group: FakeAutoScalingGroup, capacity: int | None) -> None:
    # AWS rejects a value out of bounds and otherwise returns at once; launches follow later.
    desired = group.min_size if capacity is None else capacity
    low, high = int(group.min_size or 0), int(group.max_size or 0)
    if desired is not None and desired > high:
        raise ValidationError(
            f"New SetDesiredCapacity value {desired} is above max value {high} for the AutoScalingGroup."
        )
    if desired is not None and desired < low:
        raise ValidationError(
            f"New SetDesiredCapacity value {desired} is below min value {low} for the AutoScalingGroup."
        )
    group.desired_capacity = desired
    changed()
    shrink(group)


def _within_maximum(update: Callable[..., FakeAutoScalingGroup]) -> Callable[..., FakeAutoScalingGroup]:
    def updated(backend: AutoScalingBackend, *args: Any, **kwargs: Any) -> FakeAutoScalingGroup:
        group = update(backend, *args, **kwargs)
        high = int(group.max_size or 0)
        if int(group.desired_capacity or 0) > high:
            group.set_desired_capacity(high)
        return group

    return updated


def _launch_nothing(group: FakeAutoScalingGroup, count_needed: int, propagated_tags: dict[str, str]) -> None:
    return None


def _keeping_policy(update: Callable[..., None]) -> Callable[..., None]:
    def keeping(group: FakeAutoScalingGroup, *args: Any, **kwargs: Any) -> None:
        policy = group.mixed_instances_policy
        update(group, *args, **kwargs)
        group.mixed_instances_policy = group.mixed_instances_policy or policy

    return keeping


def _terminate_instance(backend: AutoScalingBackend, instance_id: str, should_decrement: bool) -> Any:
    for group in backend.autoscaling_groups.values():
        state = member(group, instance_id)
        if state is not None:
            if should_decrement:
                _decrement(group, weight(state))
            return end(group, state, "a user request") | {"StatusCode": "InProgress", "Progress": 0}
    raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def _decrement(group: FakeAutoScalingGroup, by: int) -> None:
    if int(group.desired_capacity or 0) - by < int(group.min_size or 0):
        raise ValidationError(
            f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
            "replacement will violate group's min size constraint. Either set "
            "shouldDecrementDesiredCapacity flag to false or lower group's min size."
        )
    group.desired_capacity = int(group.desired_capacity or 0) - by


PATCHES: Final[Patches] = (
    (FakeAutoScalingGroup, "set_desired_capacity", _set_desired_capacity),
    (
        AutoScalingBackend,
        "update_auto_scaling_group",
        _within_maximum(AutoScalingBackend.update_auto_scaling_group),
    ),
    (FakeAutoScalingGroup, "replace_autoscaling_group_instances", _launch_nothing),
    (FakeAutoScalingGroup, "update", _keeping_policy(FakeAutoScalingGroup.update)),
    (AutoScalingBackend, "terminate_instance", _terminate_instance),
)
