"""The instances of Auto Scaling groups, which come and go by ``join`` and ``leave`` alone.

moto fills a group by itself: at once, by the first override, and again after every loss. On AWS a market
decides which launches succeed; here whoever plays that market does.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from moto.autoscaling.models import ASG_NAME_TAG, AutoScalingBackend, FakeAutoScalingGroup, InstanceState
from moto.core.utils import utcnow
from moto.moto_api._internal import mock_random

from pulumi_on_moto.fixes.speedups.answers import changed

ACTIVITIES_KEPT: Final = 200
"""Activities remembered for each group (AWS keeps six weeks of them)."""

_LAUNCHING: Final = "autoscaling:EC2_INSTANCE_LAUNCHING"
_IN_SERVICE: Final = "InService"
WAITING: Final = "Pending:Wait"
"""The lifecycle state of an instance that waits for a launch hook."""

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
            lifecycle_state=WAITING if waits else _IN_SERVICE,
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
        if state.instance.id == instance.id and state.lifecycle_state == WAITING:
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


def _own(group: FakeAutoScalingGroup, name: str, make: Callable[[], Any]) -> Any:
    if not hasattr(group, name):
        setattr(group, name, make())
    return getattr(group, name)


def _details(instance: Any) -> str:
    return json.dumps({"Subnet ID": instance.subnet_id, "Availability Zone": instance.placement.zone})


def _stamp() -> str:
    return utcnow().strftime("%Y-%m-%dT%H:%M:%SZ")
