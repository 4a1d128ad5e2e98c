"""Launches in one zone."""

from __future__ import annotations

import uuid
from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import Falsified, Lab

_GUIDE: Final = 'Auto Scaling guide, "Launch instances synchronously"'
_ACT: Final = "lambdas/aws/capacity/auto_scaling.py"


def _order(lab: Lab, group: str, count: int = 1) -> Any:
    """Ask for ``count`` in the last of the zones."""
    return lab.clients("autoscaling").launch_instances(
        AutoScalingGroupName=group,
        RequestedCapacity=count,
        AvailabilityZones=[max(lab.subnets)],
        ClientToken=str(uuid.uuid4()),
        RetryStrategy="retry-with-group-configuration",
    )


@assumes(
    f"{_GUIDE}; of the desired capacity it says nothing",
    _ACT,
    "it is elsewhere or not protected, or the desired capacity stays or is raised twice",
    instances=1,
)
def launch_in_zone(lab: Lab) -> str:
    """LaunchInstances launches a protected member in the zone and raises the desired capacity by it."""
    group, zone = lab.group("zone", NewInstancesProtectedFromScaleIn=True), max(lab.subnets)
    answer = lab.accepted(lambda: _order(lab, group))
    if answer.get("Errors"):
        raise Falsified(f"refused: {answer['Errors']}")
    [launched] = [one for told in answer["Instances"] for one in told["InstanceIds"]]
    lab.desires(group, 1)
    lab.until(lambda: lab.states(group) == {launched: "InService"}, "it alone is in service")
    [member] = lab.described(group)["Instances"]
    if member["AvailabilityZone"] != zone or not member["ProtectedFromScaleIn"]:
        raise Falsified(f"it is in {member['AvailabilityZone']}, protected: {member['ProtectedFromScaleIn']}")
    return f"one, protected, in {zone}, desired 1"


@assumes("none found; as SetDesiredCapacity", "lambdas/core/capacity/availability.py", "it is accepted")
def launch_in_zone_above_max(lab: Lab) -> str:
    """LaunchInstances refuses more than MaxSize leaves room for."""
    group = lab.group("zone-above")
    return lab.refused(lambda: _order(lab, group, 3), "max")


@assumes(f"{_GUIDE}, limitations", "infra/components/capacity/capacity_group.py", "it is accepted")
def launch_in_zone_refuses_warm_pool(lab: Lab) -> str:
    """LaunchInstances takes no group with a warm pool."""
    group = lab.group("zone-warm")
    lab.clients("autoscaling").put_warm_pool(
        AutoScalingGroupName=group, MinSize=0, MaxGroupPreparedCapacity=0, PoolState="Stopped"
    )
    return lab.refused(lambda: _order(lab, group), "warm pool")
