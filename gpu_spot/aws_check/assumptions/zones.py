"""Launches in one zone."""

from __future__ import annotations

import uuid
from typing import Any, Final

from gpu_spot.aws_check.assumption import Assumption
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


def _launched(lab: Lab) -> str:
    group, zone = lab.group("zone", NewInstancesProtectedFromScaleIn=True), max(lab.subnets)
    answer = lab.accepted(lambda: _order(lab, group))
    if answer.get("Errors"):
        raise Falsified(f"refused: {answer['Errors']}")
    [launched] = [one for told in answer["Instances"] for one in told["InstanceIds"]]
    desired = lab.described(group)["DesiredCapacity"]
    if desired != 1:
        raise Falsified(f"the desired capacity is {desired}")
    lab.until(lambda: lab.states(group) == {launched: "InService"}, "it alone is in service")
    [member] = lab.described(group)["Instances"]
    if member["AvailabilityZone"] != zone or not member["ProtectedFromScaleIn"]:
        raise Falsified(f"it is in {member['AvailabilityZone']}, protected: {member['ProtectedFromScaleIn']}")
    return f"one, protected, in {zone}, desired 1"


def _above_max(lab: Lab) -> str:
    group = lab.group("zone-above")
    return lab.refused(lambda: _order(lab, group, 3), "max")


def _warm(lab: Lab) -> str:
    group = lab.group("zone-warm")
    lab.clients("autoscaling").put_warm_pool(
        AutoScalingGroupName=group, MinSize=0, MaxGroupPreparedCapacity=0, PoolState="Stopped"
    )
    return lab.refused(lambda: _order(lab, group), "warm pool")


ASSUMPTIONS: Final = (
    Assumption(
        "launch-in-zone",
        "LaunchInstances launches a protected member in the zone and raises the desired capacity by it.",
        f"{_GUIDE}; of the desired capacity it says nothing",
        _ACT,
        "it is elsewhere or not protected, or the desired capacity stays or is raised twice",
        _launched,
        instances=1,
    ),
    Assumption(
        "launch-in-zone-above-max",
        "LaunchInstances refuses more than MaxSize leaves room for.",
        "none found; as SetDesiredCapacity",
        "lambdas/core/capacity/availability.py",
        "it is accepted",
        _above_max,
    ),
    Assumption(
        "launch-in-zone-refuses-warm-pool",
        "LaunchInstances takes no group with a warm pool.",
        f"{_GUIDE}, limitations",
        "infra/components/capacity/capacity_group.py",
        "it is accepted",
        _warm,
    ),
)
