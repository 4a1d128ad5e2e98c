"""A warm pool shows the instances that wait in it, and takes members back (``leaving``)."""

from __future__ import annotations

from typing import Final

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from pulumi_on_moto.fixes.fix import Fix
from pulumi_on_moto.fixes.groups.members import warm_instances


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


WARM_POOL: Final = Fix(
    "warm pool",
    moto="DescribeWarmPool never shows an instance; a scale-in ends members whatever the reuse policy says",
    aws="shows those that wait; with a reuse policy a scale-in stops members and puts them back",
    patches=((AutoScalingResponse, "describe_warm_pool", _describe_warm_pool),),
)
