"""``CompleteLifecycleAction`` ends an instance's wait for a hook; a heartbeat extends it."""

from __future__ import annotations

from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import FakeAutoScalingGroup, InstanceState
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import EmptyResult

from pulumi_on_moto.fixes import Patches
from pulumi_on_moto.fixes.groups.leaving import abandon, complete
from pulumi_on_moto.fixes.groups.members import (
    WAITING,
    complete_launch,
    is_leaving,
    launch_hook,
    listener_of,
    member,
    record_heartbeat,
    termination_hook,
)


def _complete_lifecycle_action(response: AutoScalingResponse) -> EmptyResult:
    group, state, _ = _waiting(response)
    listener = listener_of(group)
    if is_leaving(state):
        complete(group, state)
    elif response._get_param("LifecycleActionResult") == "ABANDON":
        abandon(group, state, "Lifecycle Action Completed with ABANDON Result")
    elif listener is not None:
        listener.completed(state.instance)
    else:
        complete_launch(group, state.instance)
    return EmptyResult()


def _record_heartbeat(response: AutoScalingResponse) -> EmptyResult:
    _, state, hook = _waiting(response)
    record_heartbeat(state, hook)
    return EmptyResult()


def _waiting(response: AutoScalingResponse) -> tuple[FakeAutoScalingGroup, InstanceState, Any]:
    """Return group, member and hook of the lifecycle action in a request; tokens are not supported."""
    instance_id = response._get_param("InstanceId")
    group = response.autoscaling_backend.autoscaling_groups.get(response._get_param("AutoScalingGroupName"))
    state = None if group is None else member(group, instance_id)
    if group is not None and state is not None and (is_leaving(state) or state.lifecycle_state == WAITING):
        hook = termination_hook(group) if is_leaving(state) else launch_hook(group)
        if hook is not None and hook.name == response._get_param("LifecycleHookName"):
            return group, state, hook
    raise ValidationError(f"No active Lifecycle Action found with instance ID {instance_id}")


PATCHES: Final[Patches] = (
    (AutoScalingResponse, "complete_lifecycle_action", _complete_lifecycle_action),
    (AutoScalingResponse, "record_lifecycle_action_heartbeat", _record_heartbeat),
)
