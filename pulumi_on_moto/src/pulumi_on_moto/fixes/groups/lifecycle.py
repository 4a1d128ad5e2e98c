"""``CompleteLifecycleAction`` lets an instance go that waits for a launch hook."""

from __future__ import annotations

from typing import Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import EmptyResult

from pulumi_on_moto.fixes.fix import Fix
from pulumi_on_moto.fixes.groups.members import WAITING, launch_hook


def _complete_lifecycle_action(response: AutoScalingResponse) -> EmptyResult:
    # Of the hooks only a launch's holds here, so no other action is ever active.
    backend, instance_id = response.autoscaling_backend, response._get_param("InstanceId")
    group = backend.autoscaling_groups.get(response._get_param("AutoScalingGroupName"))
    hook = None if group is None else launch_hook(group)
    if group is not None and hook is not None and hook.name == response._get_param("LifecycleHookName"):
        for state in group.instance_states:
            if state.instance.id == instance_id and state.lifecycle_state == WAITING:
                backend.local_completed(state.instance)  # type: ignore[attr-defined]
                return EmptyResult()
    raise ValidationError(f"No active Lifecycle Action found with instance ID {instance_id}")


LAUNCH_HOOK: Final = Fix(
    "launch hooks",
    moto="CompleteLifecycleAction is missing; hooks are stored and never hold",
    aws="an instance waits until its hook is completed; here a launch's does, a termination's never holds",
    known="getmoto/moto#4259 says so",
    patches=((AutoScalingResponse, "complete_lifecycle_action", _complete_lifecycle_action),),
)
