"""Members of Auto Scaling groups; only ``join`` adds them, and ``leaving`` removes them.

moto fills a group itself: at once, with the first override, and again after every loss. On AWS the market
decides which launches succeed; here the simulated market does.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from moto.autoscaling.models import ASG_NAME_TAG, AutoScalingBackend, FakeAutoScalingGroup, InstanceState
from moto.core.utils import utcnow
from moto.moto_api._internal import mock_random

from pulumi_on_moto.fixes import local, set_local
from pulumi_on_moto.fixes.speedups.cached_responses import changed

ACTIVITIES_LIMIT: Final = 200
"""Maximum number of activities of a group (AWS stores six weeks)."""

IN_SERVICE: Final = "InService"
WAITING: Final = "Pending:Wait"
"""Lifecycle state of an instance that waits for a launch hook."""
LEAVING: Final = "Terminating:Wait"
"""Lifecycle state of an instance that waits for a termination hook."""
RETURNING: Final = "Warmed:Pending:Wait"
"""Lifecycle state of an instance that waits for the hook before it returns to the warm pool."""

_LAUNCHING: Final = "autoscaling:EC2_INSTANCE_LAUNCHING"
_TERMINATING: Final = "autoscaling:EC2_INSTANCE_TERMINATING"


class MembershipListener:
    """Listener for the transitions of groups' members, which ignores them; instances are moto's."""

    def completed(self, instance: Any) -> None:
        """A client has completed the instance's launch hook: it goes into service."""
        complete_launch(instance.autoscaling_group, instance)

    def waits(self, instance: Any) -> None:
        """The group terminates the instance, which waits for the hook; EC2 may have terminated it already."""

    def departed(self, instance: Any) -> None:
        """The group has terminated and removed the instance."""

    def returned(self, instance: Any) -> None:
        """The group has stopped the instance, which waits in its warm pool."""


def activities(group: FakeAutoScalingGroup) -> deque[dict[str, Any]]:
    """Return the group's activities, newest first."""
    recent: deque[dict[str, Any]] = local(group, "activities", deque(maxlen=ACTIVITIES_LIMIT))
    return recent


def warm_instances(group: FakeAutoScalingGroup) -> list[Any]:
    """Return the stopped moto instances in the group's warm pool."""
    waiting: list[Any] = local(group, "warm", [])
    return waiting


def warm_size(group: FakeAutoScalingGroup) -> int:
    """Return the size of the group's warm pool, 0 without one.

    The maximum prepared capacity (default: the group's maximum) minus the desired capacity, at least the
    minimum (API reference, PutWarmPool).
    """
    pool = group.get_warm_pool()
    if pool is None:
        return 0
    prepared = pool.max_group_prepared_capacity
    if prepared is None:
        prepared = group.max_size
    return max(int(pool.min_size), int(prepared or 0) - int(group.desired_capacity or 0))


def on_demand(group: FakeAutoScalingGroup) -> tuple[int, int]:
    """Return the On-Demand base capacity of a group, and the percentage On-Demand above it."""
    distribution = (group.mixed_instances_policy or {}).get("InstancesDistribution") or {}
    base = int(distribution.get("OnDemandBaseCapacity") or 0)
    return base, int(distribution.get("OnDemandPercentageAboveBaseCapacity", 100))


def reuses(group: FakeAutoScalingGroup) -> bool:
    """Return whether a scale-in returns members to the group's warm pool."""
    pool = group.get_warm_pool()
    policy = {} if pool is None else pool.instance_reuse_policy or {}
    return str(policy.get("ReuseOnScaleIn", False)).casefold() == "true"


def listen(backend: AutoScalingBackend, listener: MembershipListener) -> None:
    """Report the transitions of all groups' members to ``listener``."""
    set_local(backend, "listener", listener)


def listener_of(group: FakeAutoScalingGroup) -> MembershipListener:
    """Return the listener of a group's members."""
    listener: MembershipListener = local(group.autoscaling_backend, "listener", MembershipListener())
    return listener


def launch_hook(group: FakeAutoScalingGroup) -> Any:
    """Return the launch hook of the group, None without one."""
    return _hook(group, _LAUNCHING)


def termination_hook(group: FakeAutoScalingGroup) -> Any:
    """Return the termination hook of the group, None without one."""
    return _hook(group, _TERMINATING)


def in_service(group: FakeAutoScalingGroup) -> list[InstanceState]:
    """Return the members that count towards the desired capacity: those that the group does not terminate."""
    return [state for state in group.instance_states if not is_leaving(state)]


def is_leaving(state: InstanceState) -> bool:
    """Return whether a member waits for a termination hook."""
    return state.lifecycle_state in (LEAVING, RETURNING)


def member(group: FakeAutoScalingGroup, instance_id: str) -> InstanceState | None:
    """Return a member by its instance id, None if it is not in the group."""
    return next((state for state in group.instance_states if state.instance.id == instance_id), None)


def weight(state: InstanceState) -> int:
    """Return a member's weight, its units of capacity; 1 in a group without weights.

    Auto Scaling user guide, "Configure an Auto Scaling group to use instance weights": launches continue
    until the desired capacity, in units, is reached or exceeded.
    """
    return int(getattr(state, "weighted_capacity", 1))


def capacity(members: Iterable[InstanceState]) -> int:
    """Return the sum of members' weights."""
    return sum(map(weight, members))


def _weigh(group: FakeAutoScalingGroup, state: InstanceState) -> None:
    """Set a new member's weight by its type, which DescribeAutoScalingGroups then shows."""
    policy: Mapping[str, Any] = group.mixed_instances_policy or {}
    for override in policy.get("LaunchTemplate", {}).get("Overrides") or []:
        if override.get("InstanceType") == state.instance_type and "WeightedCapacity" in override:
            state.weighted_capacity = str(override["WeightedCapacity"])  # type: ignore[attr-defined]


def join(group: FakeAutoScalingGroup, instance: Any) -> None:
    """Add a launched instance to its group; desired capacity does not change.

    With a launch hook it waits until the hook is completed (``complete_launch``) or times out. It inherits
    the group's scale-in protection, also from the warm pool (Auto Scaling user guide, "Use instance scale-in
    protection", considerations).
    """
    instance.autoscaling_group = group
    group.ec2_backend.create_tags([instance.id], {ASG_NAME_TAG: group.name, **group.get_propagated_tags()})
    hook = launch_hook(group)
    state = InstanceState(
        instance,
        lifecycle_state=WAITING if hook else IN_SERVICE,
        protected_from_scale_in=group.new_instances_protected_from_scale_in,
    )
    _weigh(group, state)
    had = capacity(group.instance_states)
    group.instance_states.append(state)
    activity = record(
        group,
        description=f"Launching a new EC2 instance: {instance.id}",
        cause=f"At {stamp()} an instance was started in response to a difference between desired and actual "
        f"capacity, increasing the capacity from {had} to {capacity(group.instance_states)}.",
        status="MidLifecycleAction" if hook else "Successful",
        details=details(instance),
    )
    if hook is not None:
        wait(state, hook, activity)


def wait(state: InstanceState, hook: Any, activity: dict[str, Any]) -> None:
    """Start a member's wait for a hook, until its heartbeat timeout; ``activity`` continues meanwhile."""
    state.local_activity = activity  # type: ignore[attr-defined]
    record_heartbeat(state, hook)


def record_heartbeat(state: InstanceState, hook: Any) -> None:
    """Restart the timeout of a member's hook (API reference, RecordLifecycleActionHeartbeat)."""
    state.local_until = utcnow() + timedelta(seconds=int(hook.heartbeat_timeout))  # type: ignore[attr-defined]


def complete_launch(group: FakeAutoScalingGroup, instance: Any) -> dict[str, Any] | None:
    """Complete the launch hook of an instance; return its activity, None if it waits for no hook."""
    state = member(group, instance.id)
    if state is None or state.lifecycle_state != WAITING:
        return None
    changed()
    state.lifecycle_state = IN_SERVICE
    activity: dict[str, Any] = state.local_activity  # type: ignore[attr-defined]
    activity.update(StatusCode="Successful", EndTime=utcnow())
    return activity


def refuse(group: FakeAutoScalingGroup, message: str, status: str = "Failed") -> None:
    """Record a failed launch; ``message`` is its StatusMessage.

    ``status`` is ``Failed`` or ``Cancelled`` (API reference, DescribeScalingActivities).
    """
    have = capacity(group.instance_states)
    record(
        group,
        description=f"Launching a new EC2 instance.  Status Reason: {message}",
        cause=f"At {stamp()} an instance was started in response to a difference between desired and actual "
        f"capacity, increasing the capacity from {have} to {group.desired_capacity}.",
        status=status,
        message=message,
    )


def launches_suspended(group: FakeAutoScalingGroup) -> bool:
    """Return whether the group's process ``Launch`` is suspended, by AWS or a client."""
    return any(process["ProcessName"] == "Launch" for process in group.suspended_processes)


def suspend_launches(group: FakeAutoScalingGroup) -> None:
    """Suspend the group's process ``Launch``, as AWS does."""
    changed()
    names = {process["ProcessName"] for process in group.suspended_processes}
    group.suspended_processes = sorted({*names, "Launch"})


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


def _hook(group: FakeAutoScalingGroup, transition: str) -> Any:
    hooks = group.autoscaling_backend.describe_lifecycle_hooks(group.name)
    return next((hook for hook in hooks if hook.lifecycle_transition == transition), None)


def details(instance: Any) -> str:
    """Return an instance's location as in activities."""
    return json.dumps({"Subnet ID": instance.subnet_id, "Availability Zone": instance.placement.zone})


def stamp() -> str:
    """Return the time as in activities."""
    return utcnow().strftime("%Y-%m-%dT%H:%M:%SZ")
