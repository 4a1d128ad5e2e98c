"""Launches in a selected zone."""

from __future__ import annotations

import uuid
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified

_GUIDE: Final = 'Auto Scaling guide, "Launch instances synchronously"'
_MODULE: Final = "lambdas/aws/capacity/auto_scaling.py"


def _launch_instances(test_bed: AwsTestBed, group: str, count: int = 1, token: str = "") -> Any:
    """Launch ``count`` instances in the last zone."""
    return test_bed.clients("autoscaling").launch_instances(
        AutoScalingGroupName=group,
        RequestedCapacity=count,
        AvailabilityZones=[max(test_bed.subnets)],
        ClientToken=token or str(uuid.uuid4()),
        RetryStrategy="retry-with-group-configuration",
    )


@assumes(
    f"{_GUIDE}; it does not mention the desired capacity",
    _MODULE,
    "another zone or no protection, or the desired capacity is not raised by one",
    instances=1,
)
def launch_in_zone(test_bed: AwsTestBed) -> str:
    """LaunchInstances launches a protected instance in the zone and raises the desired capacity by one."""
    group, zone = test_bed.group("zone", NewInstancesProtectedFromScaleIn=True), max(test_bed.subnets)
    response = test_bed.expect_success(lambda: _launch_instances(test_bed, group))
    if response.get("Errors"):
        raise Falsified(f"rejected: {response['Errors']}")
    [launched] = [i for instances in response["Instances"] for i in instances["InstanceIds"]]
    test_bed.expect_desired_capacity(group, 1)
    test_bed.wait_until(
        lambda: test_bed.lifecycle_states(group) == {launched: "InService"},
        "only this instance is in service",
    )
    [member] = test_bed.describe_group(group)["Instances"]
    if member["AvailabilityZone"] != zone or not member["ProtectedFromScaleIn"]:
        raise Falsified(f"it is in {member['AvailabilityZone']}, protected: {member['ProtectedFromScaleIn']}")
    return f"one protected instance in {zone}, desired capacity 1"


@assumes("none found; same as SetDesiredCapacity", "lambdas/core/capacity/availability.py", "it is accepted")
def launch_in_zone_above_max(test_bed: AwsTestBed) -> str:
    """LaunchInstances rejects a capacity above MaxSize."""
    group = test_bed.group("zone-above")
    return test_bed.expect_refusal(lambda: _launch_instances(test_bed, group, 3), "max")


@assumes(f"{_GUIDE}, limitations", "infra/components/capacity/capacity_group.py", "it is accepted")
def launch_in_zone_refuses_warm_pool(test_bed: AwsTestBed) -> str:
    """LaunchInstances rejects a group with a warm pool."""
    group = test_bed.group("zone-warm")
    test_bed.clients("autoscaling").put_warm_pool(
        AutoScalingGroupName=group, MinSize=0, MaxGroupPreparedCapacity=0, PoolState="Stopped"
    )
    return test_bed.expect_refusal(lambda: _launch_instances(test_bed, group), "warm pool")


@assumes(
    "LaunchInstances, ClientToken, IdempotentParameterMismatch, IdempotentCallInProgress",
    _MODULE,
    "another instance is launched",
    instances=2,
)
def launch_in_zone_once(test_bed: AwsTestBed) -> str:
    """A repeated LaunchInstances with the same client token launches no further instance."""
    group, token = test_bed.group("zone-once"), str(uuid.uuid4())
    _launch_instances(test_bed, group, token=token)
    try:
        _launch_instances(test_bed, group, token=token)
    except ClientError as error:
        if error.response["Error"]["Code"] != "IdempotentCallInProgress":
            raise
    test_bed.clock.sleep(60)
    test_bed.expect_desired_capacity(group, 1)
    launched = test_bed.lifecycle_states(group)
    if len(launched) != 1:
        raise Falsified(f"instances are {launched}")
    return "one instance, desired capacity 1"
