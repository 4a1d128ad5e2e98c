"""Instances of an Auto Scaling group."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import INSTANCE_TYPE, AwsTestBed, Falsified

_PROTECTION: Final = 'Auto Scaling guide, "Use instance scale-in protection"'
_MODULE: Final = "lambdas/aws/capacity/auto_scaling.py"
_OBSERVATION_SECONDS: Final = 120.0
"""Seconds without an expected change."""


def _terminate_one(test_bed: AwsTestBed, group: str) -> str:
    first, second = test_bed.scale_to(group, 2)
    client = test_bed.clients("autoscaling")
    test_bed.expect_success(
        lambda: client.terminate_instance_in_auto_scaling_group(
            InstanceId=first, ShouldDecrementDesiredCapacity=True
        )
    )
    test_bed.expect_desired_capacity(group, 1)
    test_bed.wait_until(lambda: first not in test_bed.lifecycle_states(group), "the instance is terminated")
    if test_bed.lifecycle_states(group) != {second: "InService"}:
        raise Falsified(f"remaining are {test_bed.lifecycle_states(group)}, not {second}")
    return "the named instance was terminated, the other was not, desired capacity 1"


@assumes("SetDesiredCapacity", _MODULE, "it is accepted")
def desired_above_max(test_bed: AwsTestBed) -> str:
    """A desired capacity above MaxSize is rejected."""
    group, client = test_bed.group("above"), test_bed.clients("autoscaling")
    return test_bed.expect_refusal(
        lambda: client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3), "above max value"
    )


@assumes("UpdateAutoScalingGroup", "docs/operations.md", "the desired capacity does not change", instances=2)
def max_lowers_desired(test_bed: AwsTestBed) -> str:
    """A MaxSize below the desired capacity lowers the desired capacity."""
    group, client = test_bed.group("lowered"), test_bed.clients("autoscaling")
    test_bed.scale_to(group, 2)
    client.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=1)
    test_bed.expect_desired_capacity(group, 1)
    return "2 became 1"


@assumes(
    "TerminateInstanceInAutoScalingGroup", _MODULE, "another instance is terminated or launched", instances=2
)
def release(test_bed: AwsTestBed) -> str:
    """TerminateInstanceInAutoScalingGroup ends only the named instance and lowers the desired capacity."""
    return _terminate_one(test_bed, test_bed.group("release"))


@assumes(_PROTECTION, _MODULE, "it is rejected", instances=2)
def release_of_a_protected(test_bed: AwsTestBed) -> str:
    """TerminateInstanceInAutoScalingGroup also terminates an instance protected from scale-in."""
    return _terminate_one(test_bed, test_bed.group("protected", NewInstancesProtectedFromScaleIn=True))


@assumes("TerminateInstanceInAutoScalingGroup", _MODULE, "another message")
def release_of_a_gone(test_bed: AwsTestBed) -> str:
    """For a terminated instance TerminateInstanceInAutoScalingGroup returns "not found"."""
    client = test_bed.clients("autoscaling")
    return test_bed.expect_refusal(
        lambda: client.terminate_instance_in_auto_scaling_group(
            InstanceId="i-0123456789abcdef0", ShouldDecrementDesiredCapacity=True
        ),
        "not found",
    )


@assumes(
    'Auto Scaling guide, "Configure an Auto Scaling group to use instance weights"',
    _MODULE,
    "the desired capacity is lowered by one, or the weight is not shown",
    instances=1,
)
def release_by_weight(test_bed: AwsTestBed) -> str:
    """A weighted instance starts if less is missing, and lowers the desired capacity by its weight."""
    group, client = test_bed.resource_name("weighed"), test_bed.clients("autoscaling")
    template = {"LaunchTemplateId": test_bed.template("weighed"), "Version": "$Latest"}
    overrides: list[Any] = [{"InstanceType": INSTANCE_TYPE, "WeightedCapacity": "2"}]
    client.create_auto_scaling_group(
        AutoScalingGroupName=group,
        MinSize=0,
        MaxSize=2,
        DesiredCapacity=1,
        MixedInstancesPolicy={
            "LaunchTemplate": {"LaunchTemplateSpecification": template, "Overrides": overrides}
        },
        VPCZoneIdentifier=",".join(test_bed.subnets.values()),
        Tags=[{**tag, "PropagateAtLaunch": True} for tag in test_bed.tags],
    )
    test_bed.wait_until(
        lambda: "InService" in test_bed.lifecycle_states(group).values(), "an instance in service"
    )
    [member] = test_bed.describe_group(group)["Instances"]
    if member.get("WeightedCapacity") != "2":
        raise Falsified(f"its weight is {member.get('WeightedCapacity')}")
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    client.terminate_instance_in_auto_scaling_group(
        InstanceId=member["InstanceId"], ShouldDecrementDesiredCapacity=True
    )
    test_bed.expect_desired_capacity(group, 0)
    return "weight 2 for a desired capacity of 1; its termination lowered 2 to 0"


@assumes(
    _PROTECTION, "infra/components/capacity/capacity_group.py", "a new instance is not protected", instances=1
)
def protection_is_inherited(test_bed: AwsTestBed) -> str:
    """New instances inherit scale-in protection from their group."""
    group = test_bed.group("inherit", NewInstancesProtectedFromScaleIn=True)
    return test_bed.expect_protected_instance(group)


@assumes(
    _PROTECTION,
    "infra/components/capacity/capacity_group.py",
    "a protected instance is terminated",
    name="protected-are-spared",
    instances=2,
)
def protected_instances_stay(test_bed: AwsTestBed) -> str:
    """A lower desired capacity terminates no instance that is protected from scale-in."""
    group = test_bed.group("spared", NewInstancesProtectedFromScaleIn=True)
    before = test_bed.scale_to(group, 2)
    test_bed.clients("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    test_bed.clock.sleep(_OBSERVATION_SECONDS)
    if set(test_bed.lifecycle_states(group)) != set(before):
        raise Falsified(f"{sorted(before)} became {test_bed.lifecycle_states(group)}")
    return f"both were running {_OBSERVATION_SECONDS:.0f} s later"


@assumes(
    'Auto Scaling guide, "Tag Auto Scaling groups and instances"',
    "userdata/boot.sh",
    "a tag is missing",
    instances=1,
)
def tags_of_members(test_bed: AwsTestBed) -> str:
    """Instances have the tags of their group, and its name as aws:autoscaling:groupName."""
    group = test_bed.group("tags")
    [member] = test_bed.scale_to(group, 1)
    instance = test_bed.clients("ec2").describe_instances(InstanceIds=[member])["Reservations"][0][
        "Instances"
    ][0]
    test_bed.expect_tags(instance, **{"aws:autoscaling:groupName": group})
    return "the group's name and tag"


@assumes("DescribeScalingActivities", _MODULE, "another message", instances=1)
def launch_activity(test_bed: AwsTestBed) -> str:
    """The description of a launch activity starts with 'Launching a new EC2 instance'."""
    group = test_bed.group("activity")
    test_bed.scale_to(group, 1)
    client = test_bed.clients("autoscaling")

    def successful() -> str | None:
        activity = client.describe_scaling_activities(AutoScalingGroupName=group, MaxRecords=1)["Activities"][
            0
        ]
        return str(activity["Description"]) if activity["StatusCode"] == "Successful" else None

    description = test_bed.wait_until(successful, "a successful activity", 60)
    if not description.startswith("Launching a new EC2 instance"):
        raise Falsified(description)
    return description.partition(":")[0]


@assumes(
    "SuspendProcesses", "infra/components/capacity/capacity_group.py", "other processes are suspended, too"
)
def suspended_process(test_bed: AwsTestBed) -> str:
    """DescribeAutoScalingGroups returns exactly the suspended processes."""
    group, client = test_bed.group("suspended"), test_bed.clients("autoscaling")
    client.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["AZRebalance"])
    processes = [process["ProcessName"] for process in test_bed.describe_group(group)["SuspendedProcesses"]]
    if processes != ["AZRebalance"]:
        raise Falsified(f"suspended are {processes}")
    return "AZRebalance only"


@assumes(
    'EC2 API reference, "Eventual consistency"',
    "lambdas/aws/capacity/observe.py",
    "it takes more than a minute",
    instances=1,
)
def described_soon(test_bed: AwsTestBed) -> str:
    """DescribeInstances returns an instance within a minute after its group lists it."""
    group, client, ec2 = test_bed.group("lag"), test_bed.clients("autoscaling"), test_bed.clients("ec2")
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    [member] = test_bed.wait_until(lambda: list(test_bed.lifecycle_states(group)), "a member")
    listed = test_bed.clock.now()
    # A filter returns an empty list; an unknown id in InstanceIds is an error.
    filters = [{"Name": "instance-id", "Values": [member]}]
    test_bed.wait_until(lambda: ec2.describe_instances(Filters=filters)["Reservations"], "described", 60)
    return f"described {test_bed.clock.now() - listed:.0f} s after it was listed"


@assumes(
    'Auto Scaling guide, "Update an Auto Scaling group\'s launch template"; StartInstanceRefresh is not used',
    "docs/adr/0006-no-instance-refresh.md",
    "the instance is replaced",
    instances=1,
)
def new_template_replaces_nothing(test_bed: AwsTestBed) -> str:
    """A group with a new version of its launch template replaces no running instance."""
    template = test_bed.template("version")
    group = test_bed.group("version", template)
    before = test_bed.scale_to(group, 1)
    ec2, client = test_bed.clients("ec2"), test_bed.clients("autoscaling")
    version = ec2.create_launch_template_version(
        LaunchTemplateId=template,
        SourceVersion="1",
        LaunchTemplateData={"UserData": "IyEvYmluL3NoCg=="},
    )["LaunchTemplateVersion"]["VersionNumber"]
    client.update_auto_scaling_group(
        AutoScalingGroupName=group,
        LaunchTemplate={"LaunchTemplateId": template, "Version": str(version)},
    )
    test_bed.clock.sleep(_OBSERVATION_SECONDS)
    after = sorted(test_bed.lifecycle_states(group))
    if after != sorted(before):
        raise Falsified(f"{before} became {after}")
    return f"the instance was running {_OBSERVATION_SECONDS:.0f} s later"


@assumes(
    "SetInstanceProtection",
    _MODULE,
    "51 are accepted",
)
def protection_of_fifty(test_bed: AwsTestBed) -> str:
    """SetInstanceProtection rejects more than 50 instances."""
    group, client = test_bed.group("fifty"), test_bed.clients("autoscaling")
    instances = [f"i-{number:017x}" for number in range(51)]
    return test_bed.expect_refusal(
        lambda: client.set_instance_protection(
            AutoScalingGroupName=group, InstanceIds=instances, ProtectedFromScaleIn=False
        ),
        "50",
        "less than or equal",
    )
