"""How members leave a group: at once, or once the termination hook that they wait for is done.

Auto Scaling user guide, "Amazon EC2 Auto Scaling lifecycle hooks": an instance that its group ends is kept in
``Terminating:Wait`` until the hook is completed or its heartbeat timeout is over. It stays in
DescribeAutoScalingGroups meanwhile and no longer counts towards the desired capacity. A hook does not keep
EC2 from taking a spot instance, and is to be completed for it all the same ("Considerations").
"""

from __future__ import annotations

from typing import Any, Final

from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup, InstanceState
from moto.core.utils import utcnow

from pulumi_on_moto.fixes.groups.members import (
    LEAVING,
    WAITING,
    complete_launch,
    details,
    launch_hook,
    member,
    record,
    stamp,
    termination_hook,
    wait,
    witness_of,
)
from pulumi_on_moto.fixes.speedups.answers import changed

_ENDED: Final = ("shutting-down", "terminated")


def end(group: FakeAutoScalingGroup, state: InstanceState, cause: str) -> dict[str, Any]:
    """Have a group end a member, and tell the witness; return the activity. Desired capacity stays."""
    if state.lifecycle_state == LEAVING:
        running: dict[str, Any] = state.local_activity  # type: ignore[attr-defined]
        return running
    activity = _begin(group, state, cause)
    if state.lifecycle_state != LEAVING:
        _let_go(group, state, activity)
    return activity


def lose(group: FakeAutoScalingGroup, instance: Any, cause: str) -> bool:
    """Have a group find out that EC2 has ended a member; tell whether it has left.

    Otherwise it waits, unhealthy, for the termination hook, which nobody on it completes any more.
    """
    state = member(group, instance.id)
    if state is None:
        return False
    changed()
    state.health_status = "Unhealthy"
    if state.lifecycle_state == LEAVING:
        return False
    activity = _begin(group, state, cause)
    if state.lifecycle_state == LEAVING:
        return False
    _remove(group, state, activity)
    return True


def complete(group: FakeAutoScalingGroup, state: InstanceState) -> None:
    """End the termination hook that a member waits for: it ends, whatever the result (same page)."""
    _let_go(group, state, state.local_activity)  # type: ignore[attr-defined]


def abandon(group: FakeAutoScalingGroup, state: InstanceState, why: str) -> None:
    """End a launch whose hook was abandoned: the instance is terminated, and the group tries again.

    The text is AWS's (re:Post, "lifecycle actions don't complete"); the status is from experience.
    """
    activity: dict[str, Any] = state.local_activity  # type: ignore[attr-defined]
    text = f"Instance failed to complete user's Lifecycle Action: {why}"
    activity.update(StatusCode="Cancelled", StatusMessage=text, EndTime=utcnow())
    activity["Description"] += f". Status Reason: {text}"
    end(group, state, f"{why.lower()} of its launch hook")


def time_out(backend: AutoScalingBackend) -> None:
    """Give every hook whose heartbeat timeout is over its default result."""
    for group in list(backend.autoscaling_groups.values()):
        for state in list(group.instance_states):
            until = getattr(state, "local_until", None)
            if until is None or until >= utcnow():
                continue
            if state.lifecycle_state == LEAVING:
                complete(group, state)
            elif state.lifecycle_state == WAITING:
                _launch_timed_out(group, state)


def _launch_timed_out(group: FakeAutoScalingGroup, state: InstanceState) -> None:
    witness = witness_of(group)
    if launch_hook(group).default_result != "CONTINUE":
        abandon(group, state, "Heartbeat Timeout")
    elif witness is not None:
        witness.completed(state.instance)
    else:
        complete_launch(group, state.instance)


def _begin(group: FakeAutoScalingGroup, state: InstanceState, cause: str) -> dict[str, Any]:
    hook = termination_hook(group)
    activity = record(
        group,
        description=f"Terminating EC2 instance: {state.instance.id}",
        cause=f"At {stamp()} an instance was taken out of service in response to {cause}.",
        status="InProgress" if hook is None else "MidLifecycleAction",
        details=details(state.instance),
    )
    if hook is not None:
        state.lifecycle_state = LEAVING
        wait(state, hook, activity)
        witness = witness_of(group)
        if witness is not None:
            witness.waits(state.instance)
    return activity


def _let_go(group: FakeAutoScalingGroup, state: InstanceState, activity: dict[str, Any]) -> None:
    if state.instance.state not in _ENDED:
        group.ec2_backend.terminate_instances([state.instance.id])
    _remove(group, state, activity)
    witness = witness_of(group)
    if witness is not None:
        witness.left(state.instance)


def _remove(group: FakeAutoScalingGroup, state: InstanceState, activity: dict[str, Any]) -> None:
    changed()
    group.instance_states = [other for other in group.instance_states if other is not state]
    activity.update(StatusCode="Successful", EndTime=utcnow())
