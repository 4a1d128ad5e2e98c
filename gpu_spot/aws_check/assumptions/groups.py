"""Who comes and goes in an Auto Scaling group."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import INSTANCE_TYPE, Falsified, Lab

_PROTECTION: Final = 'Auto Scaling guide, "Use instance scale-in protection"'
_ACT: Final = "lambdas/aws/capacity/auto_scaling.py"
_WATCHED: Final = 120.0
"""Seconds for which nothing may happen."""


def _released(lab: Lab, group: str) -> str:
    one, other = lab.serving(group, 2)
    client = lab.clients("autoscaling")
    lab.accepted(
        lambda: client.terminate_instance_in_auto_scaling_group(
            InstanceId=one, ShouldDecrementDesiredCapacity=True
        )
    )
    lab.desires(group, 1)
    lab.until(lambda: one not in lab.states(group), "the named one is gone")
    if lab.states(group) != {other: "InService"}:
        raise Falsified(f"left are {lab.states(group)}, not {other}")
    return "the named one went, the other stayed, desired 1"


@assumes("SetDesiredCapacity", _ACT, "it is accepted")
def desired_above_max(lab: Lab) -> str:
    """A desired capacity above MaxSize is refused."""
    group, client = lab.group("above"), lab.clients("autoscaling")
    return lab.refused(
        lambda: client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3), "above max value"
    )


@assumes("UpdateAutoScalingGroup", "docs/operations.md", "the desired capacity stays", instances=2)
def max_lowers_desired(lab: Lab) -> str:
    """A MaxSize below the desired capacity lowers that."""
    group, client = lab.group("lowered"), lab.clients("autoscaling")
    lab.serving(group, 2)
    client.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=1)
    lab.desires(group, 1)
    return "2 became 1"


@assumes("TerminateInstanceInAutoScalingGroup", _ACT, "another goes, or is launched", instances=2)
def release(lab: Lab) -> str:
    """TerminateInstanceInAutoScalingGroup ends the named one alone and lowers the desired capacity."""
    return _released(lab, lab.group("release"))


@assumes(_PROTECTION, _ACT, "it is refused", instances=2)
def release_of_a_protected(lab: Lab) -> str:
    """It ends an instance that is protected from scale-in, too."""
    return _released(lab, lab.group("protected", NewInstancesProtectedFromScaleIn=True))


@assumes("TerminateInstanceInAutoScalingGroup", _ACT, "other words")
def release_of_a_gone(lab: Lab) -> str:
    """Of an instance that is gone AWS says that it is not found."""
    client = lab.clients("autoscaling")
    return lab.refused(
        lambda: client.terminate_instance_in_auto_scaling_group(
            InstanceId="i-0123456789abcdef0", ShouldDecrementDesiredCapacity=True
        ),
        "not found",
    )


@assumes(
    'Auto Scaling guide, "Configure an Auto Scaling group to use instance weights"',
    _ACT,
    "the desired capacity is lowered by one, or the weight is not shown",
    instances=1,
)
def release_by_weight(lab: Lab) -> str:
    """A weighted instance starts where less is missing, and lowers the desired capacity by its weight."""
    group, client = lab.name("weighed"), lab.clients("autoscaling")
    template = {"LaunchTemplateId": lab.template("weighed"), "Version": "$Latest"}
    overrides: list[Any] = [{"InstanceType": INSTANCE_TYPE, "WeightedCapacity": "2"}]
    client.create_auto_scaling_group(
        AutoScalingGroupName=group,
        MinSize=0,
        MaxSize=2,
        DesiredCapacity=1,
        MixedInstancesPolicy={
            "LaunchTemplate": {"LaunchTemplateSpecification": template, "Overrides": overrides}
        },
        VPCZoneIdentifier=",".join(lab.subnets.values()),
        Tags=[{**tag, "PropagateAtLaunch": True} for tag in lab.tags],
    )
    lab.until(lambda: "InService" in lab.states(group).values(), "an instance in service")
    [member] = lab.described(group)["Instances"]
    if member.get("WeightedCapacity") != "2":
        raise Falsified(f"its weight is {member.get('WeightedCapacity')}")
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    client.terminate_instance_in_auto_scaling_group(
        InstanceId=member["InstanceId"], ShouldDecrementDesiredCapacity=True
    )
    lab.desires(group, 0)
    return "one of weight 2 for a desired capacity of 1, and 2 became 0 with it"


@assumes(
    _PROTECTION, "infra/components/capacity/capacity_group.py", "a new one is not protected", instances=1
)
def protection_is_inherited(lab: Lab) -> str:
    """New instances have their group's protection."""
    group = lab.group("inherit", NewInstancesProtectedFromScaleIn=True)
    return lab.serving_protected(group)


@assumes(_PROTECTION, "infra/components/capacity/capacity_group.py", "a member goes", instances=2)
def protected_are_spared(lab: Lab) -> str:
    """A lower desired capacity ends nobody who is protected."""
    group = lab.group("spared", NewInstancesProtectedFromScaleIn=True)
    before = lab.serving(group, 2)
    lab.clients("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    lab.clock.sleep(_WATCHED)
    if set(lab.states(group)) != set(before):
        raise Falsified(f"{sorted(before)} became {lab.states(group)}")
    return f"both were there {_WATCHED:.0f} s later"


@assumes(
    'Auto Scaling guide, "Tag Auto Scaling groups and instances"',
    "userdata/boot.sh",
    "a tag is missing",
    instances=1,
)
def tags_of_members(lab: Lab) -> str:
    """Members carry their group's tags, and its name as aws:autoscaling:groupName."""
    group = lab.group("tags")
    [member] = lab.serving(group, 1)
    found = lab.clients("ec2").describe_instances(InstanceIds=[member])["Reservations"][0]["Instances"][0]
    lab.is_tagged(found, **{"aws:autoscaling:groupName": group})
    return "its group's name and tag"


@assumes("DescribeScalingActivities", _ACT, "other words", instances=1)
def launch_activity(lab: Lab) -> str:
    """A launch is an activity whose description starts with 'Launching a new EC2 instance'."""
    group = lab.group("activity")
    lab.serving(group, 1)
    client = lab.clients("autoscaling")

    def successful() -> str | None:
        found = client.describe_scaling_activities(AutoScalingGroupName=group, MaxRecords=1)["Activities"][0]
        return str(found["Description"]) if found["StatusCode"] == "Successful" else None

    description = lab.until(successful, "a successful activity", 60)
    if not description.startswith("Launching a new EC2 instance"):
        raise Falsified(description)
    return description.partition(":")[0]


@assumes("SuspendProcesses", "infra/components/capacity/capacity_group.py", "others are suspended, too")
def suspended_process(lab: Lab) -> str:
    """A suspended process is shown, and no other."""
    group, client = lab.group("suspended"), lab.clients("autoscaling")
    client.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["AZRebalance"])
    found = [one["ProcessName"] for one in lab.described(group)["SuspendedProcesses"]]
    if found != ["AZRebalance"]:
        raise Falsified(f"suspended are {found}")
    return "AZRebalance alone"


@assumes(
    'EC2 API reference, "Eventual consistency"',
    "lambdas/aws/capacity/observe.py",
    "a minute passes",
    instances=1,
)
def described_soon(lab: Lab) -> str:
    """DescribeInstances shows a member within a minute of the group listing it."""
    group, client, ec2 = lab.group("lag"), lab.clients("autoscaling"), lab.clients("ec2")
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    [member] = lab.until(lambda: list(lab.states(group)), "a member")
    listed = lab.clock.now()
    # A filter answers with nothing where an id in InstanceIds would be an error.
    filters = [{"Name": "instance-id", "Values": [member]}]
    lab.until(lambda: ec2.describe_instances(Filters=filters)["Reservations"], "described", 60)
    return f"described {lab.clock.now() - listed:.0f} s after it was listed"
