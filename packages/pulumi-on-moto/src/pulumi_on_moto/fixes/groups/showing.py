"""Describe operations of groups: scaling activities, and warm pools."""

from __future__ import annotations

from typing import Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from pulumi_on_moto.fixes import Patches
from pulumi_on_moto.fixes.groups.members import activities, warm_instances

_PAGE: Final = 100
"""Activities per page, the default and the maximum of ``DescribeScalingActivities``."""


def _describe_scaling_activities(response: AutoScalingResponse) -> ActionResult:
    name = response._get_param("AutoScalingGroupName")
    requested_ids = response._get_param("ActivityIds", [])
    groups = response.autoscaling_backend.describe_auto_scaling_groups([name] if name else [])
    if name and not groups:
        raise ValidationError("AutoScalingGroup name not found - null")
    shown = [
        activity
        for group in groups
        for activity in activities(group)
        if not requested_ids or activity["ActivityId"] in requested_ids
    ]
    shown.sort(key=lambda activity: activity["StartTime"], reverse=True)
    start = int(response._get_param("NextToken") or 0)
    size = min(response._get_int_param("MaxRecords") or _PAGE, _PAGE)
    more = len(shown) > start + size
    return ActionResult(
        {"Activities": shown[start : start + size], "NextToken": str(start + size) if more else None}
    )


def _describe_warm_pool(response: AutoScalingResponse) -> ActionResult:
    name = response._get_param("AutoScalingGroupName")
    group = response.autoscaling_backend.autoscaling_groups.get(name)
    if group is None:
        raise ValidationError("AutoScalingGroup name not found - null")
    instances = [
        {
            "InstanceId": instance.id,
            "InstanceType": instance.instance_type,
            "AvailabilityZone": instance.placement.zone,
            "LifecycleState": "Warmed:Stopped",
            "HealthStatus": "Healthy",
        }
        for instance in warm_instances(group)
    ]
    return ActionResult({"WarmPoolConfiguration": group.get_warm_pool(), "Instances": instances})


PATCHES: Final[Patches] = (
    (AutoScalingResponse, "describe_scaling_activities", _describe_scaling_activities),
    (AutoScalingResponse, "describe_warm_pool", _describe_warm_pool),
)
