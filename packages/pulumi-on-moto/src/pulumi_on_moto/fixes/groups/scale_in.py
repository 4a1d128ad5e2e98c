"""The default termination policy: which instance a group terminates at scale-in.

Auto Scaling user guide, "Configure termination policies": of the zones with the most instances one that is
not protected; in a mixed group first the purchase option with too many; last the instance closest to the next
billing hour. Versions of launch templates, which come before that, are not compared here. With weights no
instance is terminated that the desired capacity needs ("Configure an Auto Scaling group to use instance
weights").
"""

from __future__ import annotations

from collections import Counter

from moto.autoscaling.models import FakeAutoScalingGroup, InstanceState
from moto.core.utils import unix_time, utcnow

from pulumi_on_moto.fixes.groups.leaving import end
from pulumi_on_moto.fixes.groups.members import (
    IN_SERVICE,
    capacity,
    in_service,
    on_demand,
    record,
    stamp,
    weight,
)


def shrink(group: FakeAutoScalingGroup) -> None:
    """Terminate members beyond the desired capacity, except those protected from scale-in.

    The scale-in stops at protected instances ("Use instance scale-in protection", considerations, with AWS's
    text; that the activity counts as cancelled is from experience).
    """
    desired = int(group.desired_capacity or 0)
    while (have := capacity(in_service(group))) > desired:
        members = in_service(group)
        spare = [state for state in members if weight(state) <= have - desired]
        if not spare:
            return
        victim = _victim(group, members, spare)
        if victim is None:
            record(
                group,
                description="Could not scale to desired capacity because all remaining instances are "
                "protected from scale in.",
                cause=f"At {stamp()} a difference between desired and actual capacity was found.",
                status="Cancelled",
            )
            return
        end(
            group,
            victim,
            "a difference between desired and actual capacity, shrinking the capacity from "
            f"{have} to {have - weight(victim)}",
            scales_in=True,
        )


def _victim(
    group: FakeAutoScalingGroup, members: list[InstanceState], spare: list[InstanceState]
) -> InstanceState | None:
    open_to_it = [state for state in spare if not _is_protected(state)]
    if not open_to_it:
        return None
    members_by_zone = Counter(state.availability_zone for state in members)
    largest = max(members_by_zone[state.availability_zone] for state in open_to_it)
    candidates = [state for state in open_to_it if members_by_zone[state.availability_zone] == largest]
    too_many = _on_demand_is_too_much(group, members)
    fitting = [state for state in candidates if _is_on_demand(state) == too_many]
    return max(fitting or candidates, key=lambda state: (_into_the_hour(state), state.instance.id))


def _is_protected(state: InstanceState) -> bool:
    """Protection starts when the instance is in service (same page)."""
    return bool(state.protected_from_scale_in) and state.lifecycle_state == IN_SERVICE


def _is_on_demand(state: InstanceState) -> bool:
    return getattr(state.instance, "lifecycle", None) != "spot"


def _on_demand_is_too_much(group: FakeAutoScalingGroup, members: list[InstanceState]) -> bool:
    base, percentage = on_demand(group)
    above = max(0, int(group.desired_capacity or 0) - base)
    return capacity(filter(_is_on_demand, members)) > base + -(-above * percentage // 100)


def _into_the_hour(state: InstanceState) -> float:
    return (unix_time(utcnow()) - unix_time(state.instance.launch_time)) % 3600.0
