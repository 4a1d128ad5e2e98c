"""The capacity of a group: what is asked for, in its bounds. Launches are another matter (``members``)."""

from __future__ import annotations

from typing import Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import FakeAutoScalingGroup

from pulumi_on_moto.fixes.fix import Fix


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
    return None


BOUNDS: Final = Fix(
    "capacity in its bounds",
    moto="SetDesiredCapacity accepts what is out of bounds, and launches or ends instances before it answers",
    aws="refuses it, and answers before anything is launched; here nothing is launched at all",
    known="launches of mixed groups: getmoto/moto#9444",
    patches=((FakeAutoScalingGroup, "set_desired_capacity", _set_desired_capacity),),
)
NO_REFILL: Final = Fix(
    "no refill",
    moto="puts a new instance in the place of one that ended, at once",
    aws="asks its market, which may have none; here nothing is launched",
    known="getmoto/moto#2325",
    patches=((FakeAutoScalingGroup, "replace_autoscaling_group_instances", _launch_nothing),),
)
