"""What Auto Scaling takes of a launch template."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.lab import IMAGE_PARAMETER, INSTANCE_TYPE, Falsified, Lab

_GUIDE: Final = (
    'Auto Scaling guide, "Use AWS Systems Manager parameters instead of AMI IDs in launch templates"'
)


def _pool_accepted(lab: Lab, group: str) -> str:
    client = lab.clients("autoscaling")
    lab.accepted(
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


def _created(lab: Lab, what: str, template: str, overrides: list[dict[str, Any]]) -> None:
    lab.clients("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=lab.name(what),
        MinSize=0,
        MaxSize=0,
        MixedInstancesPolicy=_mixed(template, overrides),
        VPCZoneIdentifier=",".join(lab.subnets.values()),
        Tags=[{**tag, "PropagateAtLaunch": True} for tag in lab.tags],
    )


@assumes(_GUIDE, "infra/program/entries/group.py", "PutWarmPool is refused")
def image_id_with_warm_pool(lab: Lab) -> str:
    """A group whose template holds an image id takes a warm pool."""
    return _pool_accepted(lab, lab.group("image-pool"))


@assumes(
    "AWS, What's New, November 2025: warm pools with mixed instances policies; refused before",
    "infra/components/capacity/capacity_group.py",
    "PutWarmPool is refused",
)
def mixed_group_with_warm_pool(lab: Lab) -> str:
    """A group of several on-demand types takes a warm pool."""
    # Two types, on-demand only, as a fallback has them.
    types = [{"InstanceType": INSTANCE_TYPE}, {"InstanceType": "t3.micro"}]
    _created(lab, "mixed-pool", lab.template("mixed-pool"), types)
    return _pool_accepted(lab, lab.name("mixed-pool"))


@assumes(_GUIDE, "infra/program/entries/group.py", "CreateAutoScalingGroup is refused")
def parameter_image(lab: Lab) -> str:
    """A group without warm pool takes a template that names its image by a parameter."""
    template = lab.template("parameter", f"resolve:ssm:{IMAGE_PARAMETER}")
    group = lab.accepted(lambda: lab.group("parameter", template))
    return f"{len(lab.described(group)['Instances'])} members, and the group is there"


@assumes(_GUIDE, "infra/program/entries/group.py", "PutWarmPool is accepted")
def parameter_image_refuses_warm_pool(lab: Lab) -> str:
    """With such a template a warm pool is refused."""
    group = lab.group("parameter-pool", lab.template("parameter-pool", f"resolve:ssm:{IMAGE_PARAMETER}"))
    client = lab.clients("autoscaling")
    return lab.refused(
        lambda: client.put_warm_pool(AutoScalingGroupName=group, MinSize=0, PoolState="Stopped"),
        "parameter",
        "resolve:ssm",
        "warm pool",
    )


@assumes(_GUIDE, "infra/program/entries/group.py", "CreateAutoScalingGroup is accepted")
def parameter_image_refuses_requirements(lab: Lab) -> str:
    """Such a template and instance requirements do not go together."""
    template = lab.template("requirements", f"resolve:ssm:{IMAGE_PARAMETER}")
    return lab.refused(lambda: _created(lab, "requirements", template, _blocks(1)), "ami-", "resolve:ssm")


@assumes(
    "CreateAutoScalingGroup, LaunchTemplateOverrides",
    "infra/schema/capacity.py",
    "a group of five is accepted",
)
def five_requirement_blocks(lab: Lab) -> str:
    """A group takes at most four blocks of instance requirements."""
    template = lab.template("blocks")
    return lab.refused(
        lambda: _created(lab, "blocks", template, _blocks(5)), "InstanceRequirements", "overrides"
    )


@assumes("CreateLaunchTemplateVersion", "infra/components/capacity/launch_template.py", "other numbers")
def template_versions(lab: Lab) -> str:
    """A new version of a template is its latest and not its default."""
    template, ec2 = lab.template("version"), lab.clients("ec2")
    made = ec2.create_launch_template_version(
        LaunchTemplateId=template, LaunchTemplateData={"ImageId": lab.image, "InstanceType": "t3.micro"}
    )
    version = made["LaunchTemplateVersion"]["VersionNumber"]
    [found] = ec2.describe_launch_templates(LaunchTemplateIds=[template])["LaunchTemplates"]
    if (version, found["LatestVersionNumber"], found["DefaultVersionNumber"]) != (2, 2, 1):
        raise Falsified(f"new {version}, latest {found['LatestVersionNumber']}")
    return "latest 2, default 1"
