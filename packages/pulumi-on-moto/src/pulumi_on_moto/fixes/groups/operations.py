"""Operations of groups: capacity and its bounds, the end of a named member, hooks, activities, warm pools.

``CompleteLifecycleAction`` ends an instance's wait for a hook; a heartbeat extends it. ``members`` handles
launches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup, InstanceState
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

from pulumi_on_moto.fixes import Patches, around, page
from pulumi_on_moto.fixes.groups import leaving, members
from pulumi_on_moto.fixes.groups.scale_in import shrink
from pulumi_on_moto.fixes.speedups.cached_responses import changed

_PAGE: Final = 100
"""Activities per page, the default and the maximum of ``DescribeScalingActivities``."""


def _set_desired_capacity(group: FakeAutoScalingGroup, capacity: int | None) -> None:
    # AWS rejects a value out of bounds and otherwise returns at once; launches follow later.
    desired = group.min_size if capacity is None else capacity
    low, high = int(group.min_size or 0), int(group.max_size or 0)
    if desired is not None and not low <= desired <= high:
        bound = f"above max value {high}" if desired > high else f"below min value {low}"
        raise ValidationError(f"New SetDesiredCapacity value {desired} is {bound} for the AutoScalingGroup.")
    group.desired_capacity = desired
    changed()
    shrink(group)


def _within_maximum(update: Callable[..., FakeAutoScalingGroup], *args: Any, **kwargs: Any) -> Any:
    group = update(*args, **kwargs)
    high = int(group.max_size or 0)
    if int(group.desired_capacity or 0) > high:
        group.set_desired_capacity(high)
    return group


def _launch_nothing(group: FakeAutoScalingGroup, count_needed: int, propagated_tags: dict[str, str]) -> None:
    return None


def _keep_policy(update: Callable[..., None], group: FakeAutoScalingGroup, *args: Any, **kwargs: Any) -> None:
    policy = group.mixed_instances_policy
    update(group, *args, **kwargs)
    group.mixed_instances_policy = group.mixed_instances_policy or policy


def _terminate_instance(backend: AutoScalingBackend, instance_id: str, should_decrement: bool) -> Any:
    for group in backend.autoscaling_groups.values():
        if (state := members.member(group, instance_id)) is not None:
            if should_decrement:
                _decrement(group, members.weight(state))
            return leaving.end(group, state, "a user request") | {"StatusCode": "InProgress", "Progress": 0}
    raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def _decrement(group: FakeAutoScalingGroup, by: int) -> None:
    if int(group.desired_capacity or 0) - by < int(group.min_size or 0):
        raise ValidationError(
            f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
            "replacement will violate group's min size constraint. Either set "
            "shouldDecrementDesiredCapacity flag to false or lower group's min size."
        )
    group.desired_capacity = int(group.desired_capacity or 0) - by


def _complete_lifecycle_action(response: AutoScalingResponse) -> EmptyResult:
    group, state, _ = _waiting(response)
    if members.is_leaving(state):
        leaving.complete(group, state)
    elif response._get_param("LifecycleActionResult") == "ABANDON":
        leaving.abandon(group, state, "Lifecycle Action Completed with ABANDON Result")
    else:
        members.listener_of(group).completed(state.instance)
    return EmptyResult()


def _record_heartbeat(response: AutoScalingResponse) -> EmptyResult:
    _, state, hook = _waiting(response)
    members.record_heartbeat(state, hook)
    return EmptyResult()


def _waiting(response: AutoScalingResponse) -> tuple[FakeAutoScalingGroup, InstanceState, Any]:
    """Return group, member and hook of the lifecycle action in a request; tokens are not supported."""
    instance_id = response._get_param("InstanceId")
    group = response.autoscaling_backend.autoscaling_groups.get(response._get_param("AutoScalingGroupName"))
    state = None if group is None else members.member(group, instance_id)
    if (
        group is not None
        and state is not None
        and (members.is_leaving(state) or state.lifecycle_state == members.WAITING)
    ):
        hook = members.termination_hook(group) if members.is_leaving(state) else members.launch_hook(group)
        if hook is not None and hook.name == response._get_param("LifecycleHookName"):
            return group, state, hook
    raise ValidationError(f"No active Lifecycle Action found with instance ID {instance_id}")


def _describe_scaling_activities(response: AutoScalingResponse) -> ActionResult:
    name = response._get_param("AutoScalingGroupName")
    requested_ids = response._get_param("ActivityIds", [])
    groups = response.autoscaling_backend.describe_auto_scaling_groups([name] if name else [])
    if name and not groups:
        raise ValidationError("AutoScalingGroup name not found - null")
    shown = [
        activity
        for group in groups
        for activity in members.activities(group)
        if not requested_ids or activity["ActivityId"] in requested_ids
    ]
    shown.sort(key=lambda activity: activity["StartTime"], reverse=True)
    return ActionResult(page(response, "Activities", shown, "MaxRecords", _PAGE))


def _describe_warm_pool(response: AutoScalingResponse) -> ActionResult:
    name = response._get_param("AutoScalingGroupName")
    group = response.autoscaling_backend.autoscaling_groups.get(name)
    if group is None:
        raise ValidationError("AutoScalingGroup name not found - null")
    instances = [
        {
            "InstanceId": instance.id,
            "InstanceType": instance.instance_type,
            "AvailabilityZone": instance.placement.zone,
            "LifecycleState": "Warmed:Stopped",
            "HealthStatus": "Healthy",
        }
        for instance in members.warm_instances(group)
    ]
    return ActionResult({"WarmPoolConfiguration": group.get_warm_pool(), "Instances": instances})


PATCHES: Final[Patches] = (
    (FakeAutoScalingGroup, "set_desired_capacity", _set_desired_capacity),
    around(AutoScalingBackend, "update_auto_scaling_group", _within_maximum),
    (FakeAutoScalingGroup, "replace_autoscaling_group_instances", _launch_nothing),
    around(FakeAutoScalingGroup, "update", _keep_policy),
    (AutoScalingBackend, "terminate_instance", _terminate_instance),
    (AutoScalingResponse, "complete_lifecycle_action", _complete_lifecycle_action),
    (AutoScalingResponse, "record_lifecycle_action_heartbeat", _record_heartbeat),
    (AutoScalingResponse, "describe_scaling_activities", _describe_scaling_activities),
    (AutoScalingResponse, "describe_warm_pool", _describe_warm_pool),
)
