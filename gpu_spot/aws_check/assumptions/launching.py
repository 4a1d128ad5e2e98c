"""Launch templates in Auto Scaling groups."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import IMAGE_PARAMETER, INSTANCE_TYPE, AwsTestBed, Falsified

_GUIDE: Final = (
    'Auto Scaling guide, "Use AWS Systems Manager parameters instead of AMI IDs in launch templates"'
)


def _expect_warm_pool(test_bed: AwsTestBed, group: str) -> str:
    client = test_bed.clients("autoscaling")
    test_bed.expect_success(
        lambda: client.put_warm_pool(
            AutoScalingGroupName=group, MinSize=0, MaxGroupPreparedCapacity=0, PoolState="Stopped"
        )
    )
    pool = client.describe_warm_pool(AutoScalingGroupName=group).get("WarmPoolConfiguration")
    if not pool:
        raise Falsified("the group has no warm pool")
    return f"pool state {pool['PoolState']}"


def _blocks(count: int) -> list[dict[str, Any]]:
    return [
        {
            "InstanceRequirements": {
                "VCpuCount": {"Min": 2, "Max": 2},
                "MemoryMiB": {"Min": 512 * n, "Max": 512 * n},
            }
        }
        for n in range(1, count + 1)
    ]


def _mixed(template: str, overrides: list[dict[str, Any]]) -> dict[str, Any]:
    specification = {"LaunchTemplateId": template, "Version": "$Latest"}
    return {
        "LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": overrides},
        "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 100},
    }


def _create_group(test_bed: AwsTestBed, suffix: str, template: str, overrides: list[dict[str, Any]]) -> None:
    test_bed.clients("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=test_bed.resource_name(suffix),
        MinSize=0,
        MaxSize=0,
        MixedInstancesPolicy=_mixed(template, overrides),
        VPCZoneIdentifier=",".join(test_bed.subnets.values()),
        Tags=[{**tag, "PropagateAtLaunch": True} for tag in test_bed.tags],
    )


@assumes(_GUIDE, "infra/program/entries/group.py", "PutWarmPool is rejected")
def image_id_with_warm_pool(test_bed: AwsTestBed) -> str:
    """A group whose launch template has an image id supports a warm pool."""
    return _expect_warm_pool(test_bed, test_bed.group("image-pool"))


@assumes(
    "AWS, What's New, November 2025: warm pools with mixed instances policies; rejected before",
    "infra/components/capacity/capacity_group.py",
    "PutWarmPool is rejected",
)
def mixed_group_with_warm_pool(test_bed: AwsTestBed) -> str:
    """A group of several On-Demand types supports a warm pool."""
    # Two types, On-Demand only, as in a fallback group.
    types = [{"InstanceType": INSTANCE_TYPE}, {"InstanceType": "t3.micro"}]
    _create_group(test_bed, "mixed-pool", test_bed.template("mixed-pool"), types)
    return _expect_warm_pool(test_bed, test_bed.resource_name("mixed-pool"))


@assumes(_GUIDE, "infra/program/entries/group.py", "CreateAutoScalingGroup is rejected")
def parameter_image(test_bed: AwsTestBed) -> str:
    """A group without warm pool supports a launch template with an SSM parameter as image."""
    template = test_bed.template("parameter", f"resolve:ssm:{IMAGE_PARAMETER}")
    group = test_bed.expect_success(lambda: test_bed.group("parameter", template))
    return f"{len(test_bed.describe_group(group)['Instances'])} members, the group exists"


@assumes(_GUIDE, "infra/program/entries/group.py", "PutWarmPool is accepted")
def parameter_image_refuses_warm_pool(test_bed: AwsTestBed) -> str:
    """A launch template with an SSM parameter as image rejects a warm pool."""
    group = test_bed.group(
        "parameter-pool", test_bed.template("parameter-pool", f"resolve:ssm:{IMAGE_PARAMETER}")
    )
    client = test_bed.clients("autoscaling")
    return test_bed.expect_refusal(
        lambda: client.put_warm_pool(AutoScalingGroupName=group, MinSize=0, PoolState="Stopped"),
        "parameter",
        "resolve:ssm",
        "warm pool",
    )


@assumes(_GUIDE, "infra/program/entries/group.py", "CreateAutoScalingGroup is accepted")
def parameter_image_refuses_requirements(test_bed: AwsTestBed) -> str:
    """A launch template with an SSM parameter as image rejects instance requirements."""
    template = test_bed.template("requirements", f"resolve:ssm:{IMAGE_PARAMETER}")
    return test_bed.expect_refusal(
        lambda: _create_group(test_bed, "requirements", template, _blocks(1)), "ami-", "resolve:ssm"
    )


@assumes(
    "CreateAutoScalingGroup, LaunchTemplateOverrides",
    "infra/schema/capacity.py",
    "a group of five is accepted",
)
def five_requirement_blocks(test_bed: AwsTestBed) -> str:
    """A group supports at most four blocks of instance requirements."""
    template = test_bed.template("blocks")
    return test_bed.expect_refusal(
        lambda: _create_group(test_bed, "blocks", template, _blocks(5)), "InstanceRequirements", "overrides"
    )


@assumes(
    "CreateLaunchTemplateVersion", "infra/components/capacity/launch_template.py", "other version numbers"
)
def template_versions(test_bed: AwsTestBed) -> str:
    """A new version of a launch template is its latest version, but not its default version."""
    template, ec2 = test_bed.template("version"), test_bed.clients("ec2")
    response = ec2.create_launch_template_version(
        LaunchTemplateId=template, LaunchTemplateData={"ImageId": test_bed.image, "InstanceType": "t3.micro"}
    )
    version = response["LaunchTemplateVersion"]["VersionNumber"]
    [description] = ec2.describe_launch_templates(LaunchTemplateIds=[template])["LaunchTemplates"]
    if (version, description["LatestVersionNumber"], description["DefaultVersionNumber"]) != (2, 2, 1):
        raise Falsified(f"new {version}, latest {description['LatestVersionNumber']}")
    return "latest 2, default 1"


@assumes(
    'EC2 Auto Scaling guide, "Use Capacity Blocks for machine learning workloads"',
    "infra/components/capacity/launch_template.py",
    "CreateLaunchTemplate is rejected, or stores other options",
)
def template_for_a_capacity_block(test_bed: AwsTestBed) -> str:
    """A launch template can name a Capacity Block, with market type capacity-block."""
    reservation = {"CapacityReservationId": "cr-0123456789abcdef0"}
    template = test_bed.expect_success(
        lambda: test_bed.template(
            "block",
            InstanceMarketOptions={"MarketType": "capacity-block"},
            CapacityReservationSpecification={"CapacityReservationTarget": reservation},
        )
    )
    versions = test_bed.clients("ec2").describe_launch_template_versions(LaunchTemplateId=template)
    stored = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    market = stored.get("InstanceMarketOptions", {}).get("MarketType")
    target = stored.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget")
    if (market, target) != ("capacity-block", reservation):
        raise Falsified(f"stored are {market}, {target}")
    return "stored with both"


@assumes(
    "CreateLaunchTemplate, VolumeInitializationRate; EBS user guide, "
    '"Use an Amazon EBS Provisioned Rate for Volume Initialization"',
    "infra/components/capacity/launch_template.py",
    "CreateLaunchTemplate is rejected, or drops the rate",
)
def rate_of_initialization(test_bed: AwsTestBed) -> str:
    """A launch template can set the initialization rate of a volume from a snapshot."""
    volume = {"SnapshotId": "snap-0123456789abcdef0", "VolumeType": "gp3", "VolumeInitializationRate": 100}
    template = test_bed.expect_success(
        lambda: test_bed.template("rate", BlockDeviceMappings=[{"DeviceName": "/dev/sdf", "Ebs": volume}])
    )
    versions = test_bed.clients("ec2").describe_launch_template_versions(LaunchTemplateId=template)
    [mapping] = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]["BlockDeviceMappings"]
    if mapping["Ebs"].get("VolumeInitializationRate") != 100:
        raise Falsified(f"stored is {mapping['Ebs']}")
    return "stored with 100 MiB/s"


@assumes(
    'EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network cards"; '
    "CreateLaunchTemplate, LaunchTemplatePlacementRequest",
    "infra/components/capacity/launch_template.py",
    "CreateLaunchTemplate is rejected, or stores other interfaces",
)
def template_with_efa(test_bed: AwsTestBed) -> str:
    """A launch template can have EFA interfaces on several network cards, and a placement group."""
    interfaces = [
        {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "interface"},
        {"NetworkCardIndex": 0, "DeviceIndex": 1, "InterfaceType": "efa-only"},
        {"NetworkCardIndex": 1, "DeviceIndex": 0, "InterfaceType": "efa-only"},
    ]
    placement = {"GroupName": test_bed.resource_name("nodes")}
    template = test_bed.expect_success(
        lambda: test_bed.template(
            "efa", InstanceType="p4d.24xlarge", NetworkInterfaces=interfaces, Placement=placement
        )
    )
    versions = test_bed.clients("ec2").describe_launch_template_versions(LaunchTemplateId=template)
    stored = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    keys = interfaces[0].keys()
    stored_interfaces = [
        {key: entry.get(key) for key in keys} for entry in stored.get("NetworkInterfaces", [])
    ]
    if (stored_interfaces, stored.get("Placement", {}).get("GroupName")) != (
        interfaces,
        placement["GroupName"],
    ):
        raise Falsified(f"stored are {stored_interfaces}, {stored.get('Placement')}")
    return "stored with three interfaces and a placement group"
