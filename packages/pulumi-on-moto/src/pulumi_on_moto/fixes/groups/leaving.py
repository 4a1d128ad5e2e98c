"""Removal of members from a group, at once or after the termination hook.

Auto Scaling user guide, "Amazon EC2 Auto Scaling lifecycle hooks": an instance that its group terminates
stays in ``Terminating:Wait`` until the hook is completed or its heartbeat timeout has passed. Meanwhile
DescribeAutoScalingGroups shows it, and it does not count towards the desired capacity. A hook does not
prevent a Spot interruption, and must be completed for an interrupted instance, too ("Considerations").

If the warm pool has an instance reuse policy, an instance that leaves by a scale-in waits in
``Warmed:Pending:Wait`` instead, and is then stopped; if the pool is full it is terminated ("Use lifecycle
hooks with a warm pool", "Warm pools", core concepts).
"""

from __future__ import annotations

from typing import Any, Final

from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup, InstanceState
from moto.core.utils import utcnow

from pulumi_on_moto.fixes.groups.members import (
    LEAVING,
    RETURNING,
    WAITING,
    details,
    is_leaving,
    launch_hook,
    listener_of,
    member,
    record,
    reuses,
    stamp,
    termination_hook,
    wait,
    warm_instances,
    warm_size,
)
from pulumi_on_moto.fixes.speedups.cached_responses import changed

_ENDED: Final = ("shutting-down", "terminated")


def end(
    group: FakeAutoScalingGroup, state: InstanceState, cause: str, *, scales_in: bool = False
) -> dict[str, Any]:
    """Terminate a member by its group; return the activity. Desired capacity does not change.

    ``scales_in``: a scale-in, at which the member may return to the warm pool.
    """
    if is_leaving(state):
        running: dict[str, Any] = state.local_activity  # type: ignore[attr-defined]
        return running
    activity = _begin(group, state, cause, RETURNING if scales_in and reuses(group) else LEAVING)
    if termination_hook(group) is None:
        _let_go(group, state, activity)
    return activity


def lose(group: FakeAutoScalingGroup, instance: Any, cause: str) -> bool:
    """Process a termination by EC2 in the group; return whether the member has left.

    Otherwise it waits, unhealthy, for the termination hook, which the instance cannot complete any more.
    """
    state = member(group, instance.id)
    if state is None:
        return False
    changed()
    state.health_status = "Unhealthy"
    if is_leaving(state):
        return False
    activity = _begin(group, state, cause, LEAVING)
    if termination_hook(group) is not None:
        return False
    _remove(group, state, activity)
    return True


def complete(group: FakeAutoScalingGroup, state: InstanceState) -> None:
    """Complete the termination hook of a member, which continues with any result (same page)."""
    _let_go(group, state, state.local_activity)  # type: ignore[attr-defined]


def abandon(group: FakeAutoScalingGroup, state: InstanceState, reason: str) -> None:
    """Process an abandoned launch hook: the instance is terminated, and the group retries.

    The text is AWS's (re:Post, "lifecycle actions don't complete"); the status is from experience.
    """
    activity: dict[str, Any] = state.local_activity  # type: ignore[attr-defined]
    text = f"Instance failed to complete user's Lifecycle Action: {reason}"
    activity.update(StatusCode="Cancelled", StatusMessage=text, EndTime=utcnow())
    activity["Description"] += f". Status Reason: {text}"
    end(group, state, f"{reason.lower()} of its launch hook")


def time_out(backend: AutoScalingBackend) -> None:
    """Complete every hook whose heartbeat timeout has passed with its default result."""
    for group in list(backend.autoscaling_groups.values()):
        for state in list(group.instance_states):
            expires_at = getattr(state, "local_until", None)
            if expires_at is None or expires_at >= utcnow():
                continue
            if is_leaving(state):
                complete(group, state)
            elif state.lifecycle_state == WAITING and launch_hook(group).default_result == "CONTINUE":
                listener_of(group).completed(state.instance)
            elif state.lifecycle_state == WAITING:
                abandon(group, state, "Heartbeat Timeout")


def _begin(group: FakeAutoScalingGroup, state: InstanceState, cause: str, into: str) -> dict[str, Any]:
    hook = termination_hook(group)
    activity = record(
        group,
        description=f"Terminating EC2 instance: {state.instance.id}",
        cause=f"At {stamp()} an instance was taken out of service in response to {cause}.",
        status="InProgress" if hook is None else "MidLifecycleAction",
        details=details(state.instance),
    )
    state.lifecycle_state = into
    if hook is not None:
        wait(state, hook, activity)
        listener_of(group).waits(state.instance)
    return activity


def _let_go(group: FakeAutoScalingGroup, state: InstanceState, activity: dict[str, Any]) -> None:
    instance, listener = state.instance, listener_of(group)
    lives = instance.state not in _ENDED
    _remove(group, state, activity)
    if lives and state.lifecycle_state == RETURNING and len(warm_instances(group)) < warm_size(group):
        instance.stop()
        warm_instances(group).append(instance)
        listener.returned(instance)
        return
    if lives:
        group.ec2_backend.terminate_instances([instance.id])
    listener.departed(instance)


def _remove(group: FakeAutoScalingGroup, state: InstanceState, activity: dict[str, Any]) -> None:
    changed()
    group.instance_states = [member for member in group.instance_states if member is not state]
    activity.update(StatusCode="Successful", EndTime=utcnow())
