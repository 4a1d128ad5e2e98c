"""Auto Scaling groups as AWS has them, where moto's own go astray.

moto fills a group by itself: at once, on-demand only, one type, one subnet, and again after every loss. In
the local cloud the market decides which launches succeed, so capacity is recorded here and instances come
and go through ``join`` and ``leave``. Each patched method says what AWS does.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest import mock

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import ASG_NAME_TAG, AutoScalingBackend, FakeAutoScalingGroup, InstanceState
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow
from moto.moto_api._internal import mock_random

from pulumi_on_moto.fixes.answers import changed

ACTIVITIES_KEPT: Final = 200
"""Activities remembered for each group (AWS keeps six weeks of them)."""

_PAGE: Final = 100
"""Activities in a page: the default and the maximum of ``DescribeScalingActivities``."""

_LAUNCHING: Final = "autoscaling:EC2_INSTANCE_LAUNCHING"
_WAITING: Final = "Pending:Wait"
_IN_SERVICE: Final = "InService"

Listener = Callable[[Any], None]


def activities(group: FakeAutoScalingGroup) -> deque[dict[str, Any]]:
    """Return the group's activities, newest first."""
    kept: deque[dict[str, Any]] = _own(group, "local_activities", lambda: deque(maxlen=ACTIVITIES_KEPT))
    return kept


def warm_instances(group: FakeAutoScalingGroup) -> list[Any]:
    """Return the moto instances that wait, stopped, in the group's warm pool."""
    waiting: list[Any] = _own(group, "local_warm", list)
    return waiting


def listen(backend: AutoScalingBackend, terminated: Listener, completed: Listener) -> None:
    """Call ``terminated(instance)`` whenever a client has a group terminate an instance.

    ``completed(instance)`` is called when a client completes the launch hook that an instance waits for.
    """
    backend.local_listener = terminated  # type: ignore[attr-defined]
    backend.local_completed = completed  # type: ignore[attr-defined]


def launch_hook(group: FakeAutoScalingGroup) -> Any:
    """Return the lifecycle hook that launches of the group wait for, None if there is none."""
    hooks = group.autoscaling_backend.describe_lifecycle_hooks(group.name)
    return next((hook for hook in hooks if hook.lifecycle_transition == _LAUNCHING), None)


def join(group: FakeAutoScalingGroup, instance: Any) -> None:
    """Put a launched instance into its group: desired capacity stays as it is.

    With a launch hook it waits, as on AWS, until the hook is completed: see ``complete_launch``.
    """
    instance.autoscaling_group = group
    group.ec2_backend.create_tags([instance.id], {ASG_NAME_TAG: group.name, **group.get_propagated_tags()})
    waits = launch_hook(group) is not None
    group.instance_states.append(
        InstanceState(
            instance,
            lifecycle_state=_WAITING if waits else _IN_SERVICE,
            protected_from_scale_in=group.new_instances_protected_from_scale_in,
        )
    )
    have = len(group.instance_states)
    instance.local_launch = record(
        group,
        description=f"Launching a new EC2 instance: {instance.id}",
        cause=f"At {_stamp()} an instance was started in response to a difference between desired and actual "
        f"capacity, increasing the capacity from {have - 1} to {have}.",
        status="MidLifecycleAction" if waits else "Successful",
        details=_details(instance),
    )


def complete_launch(group: FakeAutoScalingGroup, instance: Any) -> dict[str, Any] | None:
    """Complete the launch hook that an instance waits for; return its activity, None if it waits for none."""
    for state in group.instance_states:
        if state.instance.id == instance.id and state.lifecycle_state == _WAITING:
            changed()
            state.lifecycle_state = _IN_SERVICE
            activity: dict[str, Any] = instance.local_launch
            activity.update(StatusCode="Successful", EndTime=utcnow())
            return activity
    return None


def leave(group: FakeAutoScalingGroup, instance: Any, cause: str) -> None:
    """Take an instance out of a group: desired capacity stays as it is."""
    group.instance_states = [state for state in group.instance_states if state.instance.id != instance.id]
    record(
        group,
        description=f"Terminating EC2 instance: {instance.id}",
        cause=f"At {_stamp()} an instance was taken out of service in response to {cause}.",
        status="Successful",
        details=_details(instance),
    )


def refuse(group: FakeAutoScalingGroup, message: str) -> None:
    """Record a launch that AWS refused; ``message`` is its StatusMessage."""
    have = len(group.instance_states)
    record(
        group,
        description=f"Launching a new EC2 instance.  Status Reason: {message}",
        cause=f"At {_stamp()} an instance was started in response to a difference between desired and actual "
        f"capacity, increasing the capacity from {have} to {group.desired_capacity}.",
        status="Failed",
        message=message,
    )


def record(
    group: FakeAutoScalingGroup,
    *,
    description: str,
    cause: str,
    status: str,
    message: str = "",
    details: str = "{}",
) -> dict[str, Any]:
    """Add an activity in the shape of ``DescribeScalingActivities`` and return it."""
    changed()
    now = utcnow()
    activity = {
        "ActivityId": str(mock_random.uuid4()),
        "AutoScalingGroupName": group.name,
        "AutoScalingGroupARN": group.arn,
        "Description": description,
        "Cause": cause,
        "StartTime": now,
        "EndTime": now,
        "StatusCode": status,
        "Progress": 100,
        "Details": details,
    }
    if message:
        activity["StatusMessage"] = message
    activities(group).appendleft(activity)
    return activity


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """Patch moto's Auto Scaling while the body runs."""
    group, backend, response = FakeAutoScalingGroup, AutoScalingBackend, AutoScalingResponse
    with contextlib.ExitStack() as stack:
        for target, name, replacement in (
            (group, "set_desired_capacity", _set_desired_capacity),
            (group, "replace_autoscaling_group_instances", _launch_nothing),
            (group, "update", _keeping_policy(group.update)),
            (backend, "terminate_instance", _terminate_instance),
            (response, "describe_scaling_activities", _describe_scaling_activities),
            (response, "describe_warm_pool", _describe_warm_pool),
            (response, "complete_lifecycle_action", _complete_lifecycle_action),
        ):
            stack.enter_context(mock.patch.object(target, name, replacement, create=True))
        yield


def _set_desired_capacity(group: FakeAutoScalingGroup, capacity: int | None) -> None:
    # AWS refuses what is out of bounds, and otherwise returns at once: launches follow later.
    wanted = group.min_size if capacity is None else capacity
    low, high = int(group.min_size or 0), int(group.max_size or 0)
    if wanted is not None and wanted > high:
        raise ValidationError(
            f"New SetDesiredCapacity value {wanted} is above max value {high} for the AutoScalingGroup."
        )
    if wanted is not None and wanted < low:
        raise ValidationError(
            f"New SetDesiredCapacity value {wanted} is below min value {low} for the AutoScalingGroup."
        )
    group.desired_capacity = wanted


def _launch_nothing(group: FakeAutoScalingGroup, count_needed: int, propagated_tags: dict[str, str]) -> None:
    # moto refills a group on-demand after a loss; AWS asks its market, which here is the market engine.
    return None


def _keeping_policy(update: Callable[..., None]) -> Callable[..., None]:
    # AWS leaves the mixed-instances policy alone when an update does not name one; moto drops it.
    def keeping(group: FakeAutoScalingGroup, *args: Any, **kwargs: Any) -> None:
        policy = group.mixed_instances_policy
        update(group, *args, **kwargs)
        group.mixed_instances_policy = group.mixed_instances_policy or policy

    return keeping


def _terminate_instance(backend: AutoScalingBackend, instance_id: str, should_decrement: bool) -> Any:
    # AWS terminates exactly this instance, and with decrement lowers desired capacity, not below the minimum.
    for group in backend.autoscaling_groups.values():
        for state in group.instance_states:
            if state.instance.id == instance_id:
                return _terminate(backend, group, state.instance, should_decrement)
    raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def _terminate(
    backend: AutoScalingBackend, group: FakeAutoScalingGroup, instance: Any, should_decrement: bool
) -> Any:
    if should_decrement:
        if int(group.desired_capacity or 0) <= int(group.min_size or 0):
            raise ValidationError(
                f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
                "replacement will violate group's min size constraint. Either set "
                "shouldDecrementDesiredCapacity flag to false or lower group's min size."
            )
        group.desired_capacity = int(group.desired_capacity or 0) - 1
    group.ec2_backend.terminate_instances([instance.id])
    leave(group, instance, "a user request")
    listener: Listener | None = getattr(backend, "local_listener", None)
    if listener is not None:
        listener(instance)
    return activities(group)[0] | {"StatusCode": "InProgress", "Progress": 0}


def _describe_scaling_activities(response: AutoScalingResponse) -> ActionResult:
    # moto always answers with none. AWS: newest first, by group, in pages of 100 at most.
    name = response._get_param("AutoScalingGroupName")
    wanted = response._get_param("ActivityIds", [])
    groups = response.autoscaling_backend.describe_auto_scaling_groups([name] if name else [])
    if name and not groups:
        raise ValidationError("AutoScalingGroup name not found - null")
    found = [
        activity
        for group in groups
        for activity in activities(group)
        if not wanted or activity["ActivityId"] in wanted
    ]
    found.sort(key=lambda activity: activity["StartTime"], reverse=True)
    start = int(response._get_param("NextToken") or 0)
    size = min(response._get_int_param("MaxRecords") or _PAGE, _PAGE)
    more = len(found) > start + size
    return ActionResult(
        {"Activities": found[start : start + size], "NextToken": str(start + size) if more else None}
    )


def _describe_warm_pool(response: AutoScalingResponse) -> ActionResult:
    # moto stores the pool's configuration and never has instances in it.
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
        for instance in warm_instances(group)
    ]
    return ActionResult({"WarmPoolConfiguration": group.get_warm_pool(), "Instances": instances})


def _complete_lifecycle_action(response: AutoScalingResponse) -> EmptyResult:
    # moto has no such call. Of the hooks only a launch's holds here, so no other action is ever active.
    backend, instance_id = response.autoscaling_backend, response._get_param("InstanceId")
    group = backend.autoscaling_groups.get(response._get_param("AutoScalingGroupName"))
    hook = None if group is None else launch_hook(group)
    if group is not None and hook is not None and hook.name == response._get_param("LifecycleHookName"):
        for state in group.instance_states:
            if state.instance.id == instance_id and state.lifecycle_state == _WAITING:
                backend.local_completed(state.instance)  # type: ignore[attr-defined]
                return EmptyResult()
    raise ValidationError(f"No active Lifecycle Action found with instance ID {instance_id}")


def _own(group: FakeAutoScalingGroup, name: str, make: Callable[[], Any]) -> Any:
    if not hasattr(group, name):
        setattr(group, name, make())
    return getattr(group, name)


def _details(instance: Any) -> str:
    return json.dumps({"Subnet ID": instance.subnet_id, "Availability Zone": instance.placement.zone})


def _stamp() -> str:
    return utcnow().strftime("%Y-%m-%dT%H:%M:%SZ")
