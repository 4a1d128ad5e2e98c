"""Desired capacity of a group and its bounds. ``members`` handles launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup

from pulumi_on_moto.fixes.fix import Fix
from pulumi_on_moto.fixes.groups.scale_in import shrink
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


BOUNDS: Final = Fix(
    "capacity in its bounds",
    moto="SetDesiredCapacity accepts what is out of bounds, launches at once, and ends the first in its list",
    aws="refuses it, launches later, and ends members by its termination policy; here nothing is launched",
    upstream_issue="launches of mixed groups: getmoto/moto#9444",
    patches=((FakeAutoScalingGroup, "set_desired_capacity", _set_desired_capacity),),
)
MAXIMUM: Final = Fix(
    "maximum lowered",
    moto="UpdateAutoScalingGroup with a MaxSize below the desired capacity keeps that while fewer live",
    aws="lowers the desired capacity to it, and so ends members",
    patches=(
        (
            AutoScalingBackend,
            "update_auto_scaling_group",
            _within_maximum(AutoScalingBackend.update_auto_scaling_group),
        ),
    ),
)
NO_REFILL: Final = Fix(
    "no refill",
    moto="puts a new instance in the place of one that ended, at once",
    aws="asks its market, which may have none; here nothing is launched",
    upstream_issue="getmoto/moto#2325",
    patches=((FakeAutoScalingGroup, "replace_autoscaling_group_instances", _launch_nothing),),
)


def _keeping_policy(update: Callable[..., None]) -> Callable[..., None]:
    def keeping(group: FakeAutoScalingGroup, *args: Any, **kwargs: Any) -> None:
        policy = group.mixed_instances_policy
        update(group, *args, **kwargs)
        group.mixed_instances_policy = group.mixed_instances_policy or policy

    return keeping


STABLE_POLICY: Final = Fix(
    "mixed-instances policy kept",
    moto="UpdateAutoScalingGroup without a mixed-instances policy drops the group's",
    aws="leaves it alone",
    upstream_issue="came with getmoto/moto#9619",
    patches=((FakeAutoScalingGroup, "update", _keeping_policy(FakeAutoScalingGroup.update)),),
)
