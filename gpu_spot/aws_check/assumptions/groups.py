"""Who comes and goes in an Auto Scaling group."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.lab import INSTANCE_TYPE, TAG, Falsified, Lab

_PROTECTION: Final = 'Auto Scaling guide, "Use instance scale-in protection"'
_ACT: Final = "lambdas/aws/capacity/auto_scaling.py"
_WATCHED: Final = 120.0
"""Seconds for which nothing may happen."""


def _above_max(lab: Lab) -> str:
    group, client = lab.group("above"), lab.clients("autoscaling")
    return lab.refused(
        lambda: client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3), "above max value"
    )


def _max_lowers_desired(lab: Lab) -> str:
    group, client = lab.group("lowered"), lab.clients("autoscaling")
    lab.serving(group, 2)
    client.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=1)
    desired = lab.described(group)["DesiredCapacity"]
    if desired != 1:
        raise Falsified(f"the desired capacity is {desired}")
    return "2 became 1"


def _released(lab: Lab, group: str) -> str:
    one, other = lab.serving(group, 2)
    client = lab.clients("autoscaling")
    lab.accepted(
        lambda: client.terminate_instance_in_auto_scaling_group(
            InstanceId=one, ShouldDecrementDesiredCapacity=True
        )
    )
    desired = lab.described(group)["DesiredCapacity"]
    if desired != 1:
        raise Falsified(f"the desired capacity is {desired}")
    lab.until(lambda: one not in lab.states(group), "the named one is gone")
    if lab.states(group) != {other: "InService"}:
        raise Falsified(f"left are {lab.states(group)}, not {other}")
    return "the named one went, the other stayed, desired 1"


def _release(lab: Lab) -> str:
    return _released(lab, lab.group("release"))


def _release_protected(lab: Lab) -> str:
    return _released(lab, lab.group("protected", NewInstancesProtectedFromScaleIn=True))


def _release_unknown(lab: Lab) -> str:
    client = lab.clients("autoscaling")
    return lab.refused(
        lambda: client.terminate_instance_in_auto_scaling_group(
            InstanceId="i-0123456789abcdef0", ShouldDecrementDesiredCapacity=True
        ),
        "not found",
    )


def _release_by_weight(lab: Lab) -> str:
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
    desired = lab.described(group)["DesiredCapacity"]
    if desired != 0:
        raise Falsified(f"the desired capacity is {desired}")
    return "one of weight 2 for a desired capacity of 1, and 2 became 0 with it"


def _inherit(lab: Lab) -> str:
    group = lab.group("inherit", NewInstancesProtectedFromScaleIn=True)
    return lab.serving_protected(group)


def _spared(lab: Lab) -> str:
    group = lab.group("spared", NewInstancesProtectedFromScaleIn=True)
    before = lab.serving(group, 2)
    lab.clients("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    lab.clock.sleep(_WATCHED)
    if set(lab.states(group)) != set(before):
        raise Falsified(f"{sorted(before)} became {lab.states(group)}")
    return f"both were there {_WATCHED:.0f} s later"


def _tags(lab: Lab) -> str:
    group = lab.group("tags")
    [member] = lab.serving(group, 1)
    found = lab.clients("ec2").describe_instances(InstanceIds=[member])["Reservations"][0]["Instances"][0]
    tags = {tag["Key"]: tag["Value"] for tag in found["Tags"]}
    if tags.get("aws:autoscaling:groupName") != group or tags.get(TAG) != lab.run:
        raise Falsified(f"its tags are {tags}")
    return "its group's name and tag"


def _activity(lab: Lab) -> str:
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


def _suspended(lab: Lab) -> str:
    group, client = lab.group("suspended"), lab.clients("autoscaling")
    client.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["AZRebalance"])
    found = [one["ProcessName"] for one in lab.described(group)["SuspendedProcesses"]]
    if found != ["AZRebalance"]:
        raise Falsified(f"suspended are {found}")
    return "AZRebalance alone"


def _described_soon(lab: Lab) -> str:
    group, client, ec2 = lab.group("lag"), lab.clients("autoscaling"), lab.clients("ec2")
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    [member] = lab.until(lambda: list(lab.states(group)), "a member")
    listed = lab.clock.now()
    # A filter answers with nothing where an id in InstanceIds would be an error.
    filters = [{"Name": "instance-id", "Values": [member]}]
    lab.until(lambda: ec2.describe_instances(Filters=filters)["Reservations"], "described", 60)
    return f"described {lab.clock.now() - listed:.0f} s after it was listed"


ASSUMPTIONS: Final = (
    Assumption(
        "desired-above-max",
        "A desired capacity above MaxSize is refused.",
        "SetDesiredCapacity",
        _ACT,
        "it is accepted",
        _above_max,
    ),
    Assumption(
        "max-lowers-desired",
        "A MaxSize below the desired capacity lowers that.",
        "UpdateAutoScalingGroup",
        "docs/operations.md",
        "the desired capacity stays",
        _max_lowers_desired,
        instances=2,
    ),
    Assumption(
        "release",
        "TerminateInstanceInAutoScalingGroup ends the named one alone and lowers the desired capacity.",
        "TerminateInstanceInAutoScalingGroup",
        _ACT,
        "another goes, or is launched",
        _release,
        instances=2,
    ),
    Assumption(
        "release-of-a-protected",
        "It ends an instance that is protected from scale-in, too.",
        _PROTECTION,
        _ACT,
        "it is refused",
        _release_protected,
        instances=2,
    ),
    Assumption(
        "release-of-a-gone",
        "Of an instance that is gone AWS says that it is not found.",
        "TerminateInstanceInAutoScalingGroup",
        _ACT,
        "other words",
        _release_unknown,
    ),
    Assumption(
        "release-by-weight",
        "An instance with a weight is launched where less is missing, and takes its whole weight off the "
        "desired capacity.",
        'Auto Scaling guide, "Configure an Auto Scaling group to use instance weights"',
        _ACT,
        "the desired capacity is lowered by one, or the weight is not shown",
        _release_by_weight,
        instances=1,
    ),
    Assumption(
        "protection-is-inherited",
        "New instances have their group's protection.",
        _PROTECTION,
        "infra/components/capacity/capacity_group.py",
        "a new one is not protected",
        _inherit,
        instances=1,
    ),
    Assumption(
        "protected-are-spared",
        "A lower desired capacity ends nobody who is protected.",
        _PROTECTION,
        "infra/components/capacity/capacity_group.py",
        "a member goes",
        _spared,
        instances=2,
    ),
    Assumption(
        "tags-of-members",
        "Members carry their group's tags, and its name as aws:autoscaling:groupName.",
        'Auto Scaling guide, "Tag Auto Scaling groups and instances"',
        "userdata/boot.sh",
        "a tag is missing",
        _tags,
        instances=1,
    ),
    Assumption(
        "launch-activity",
        "A launch is an activity whose description starts with 'Launching a new EC2 instance'.",
        "DescribeScalingActivities",
        _ACT,
        "other words",
        _activity,
        instances=1,
    ),
    Assumption(
        "suspended-process",
        "A suspended process is shown, and no other.",
        "SuspendProcesses",
        "infra/components/capacity/capacity_group.py",
        "others are suspended, too",
        _suspended,
    ),
    Assumption(
        "described-soon",
        "DescribeInstances shows a member within a minute of the group listing it.",
        'EC2 API reference, "Eventual consistency"',
        "lambdas/aws/capacity/observe.py",
        "a minute passes",
        _described_soon,
        instances=1,
    ),
)
