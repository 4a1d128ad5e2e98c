"""A group's mixed-instances policy outlives updates that do not name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.autoscaling.models import FakeAutoScalingGroup

from pulumi_on_moto.fixes.fix import Fix


def _keeping_policy(update: Callable[..., None]) -> Callable[..., None]:
    def keeping(group: FakeAutoScalingGroup, *args: Any, **kwargs: Any) -> None:
        policy = group.mixed_instances_policy
        update(group, *args, **kwargs)
        group.mixed_instances_policy = group.mixed_instances_policy or policy

    return keeping


KEPT_POLICY: Final = Fix(
    "mixed-instances policy kept",
    moto="UpdateAutoScalingGroup without a mixed-instances policy drops the group's",
    aws="leaves it alone",
    known="came with getmoto/moto#9619",
    patches=((FakeAutoScalingGroup, "update", _keeping_policy(FakeAutoScalingGroup.update)),),
)
