"""What Auto Scaling takes of a launch template."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.lab import IMAGE_PARAMETER, INSTANCE_TYPE, Falsified, Lab

_GUIDE: Final = (
    'Auto Scaling guide, "Use AWS Systems Manager parameters instead of AMI IDs in launch templates"'
)


def _image_with_pool(lab: Lab) -> str:
    return _pool_accepted(lab, lab.group("image-pool"))


def _mixed_with_pool(lab: Lab) -> str:
    """Two types, on-demand only, as a fallback has them."""
    types = [{"InstanceType": INSTANCE_TYPE}, {"InstanceType": "t3.micro"}]
    _created(lab, "mixed-pool", lab.template("mixed-pool"), types)
    return _pool_accepted(lab, lab.name("mixed-pool"))


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


def _parameter_accepted(lab: Lab) -> str:
    template = lab.template("parameter", f"resolve:ssm:{IMAGE_PARAMETER}")
    group = lab.accepted(lambda: lab.group("parameter", template))
    return f"{len(lab.described(group)['Instances'])} members, and the group is there"


def _parameter_with_pool(lab: Lab) -> str:
    group = lab.group("parameter-pool", lab.template("parameter-pool", f"resolve:ssm:{IMAGE_PARAMETER}"))
    client = lab.clients("autoscaling")
    return lab.refused(
        lambda: client.put_warm_pool(AutoScalingGroupName=group, MinSize=0, PoolState="Stopped"),
        "parameter",
        "resolve:ssm",
        "warm pool",
    )


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


def _parameter_with_requirements(lab: Lab) -> str:
    template = lab.template("requirements", f"resolve:ssm:{IMAGE_PARAMETER}")
    return lab.refused(lambda: _created(lab, "requirements", template, _blocks(1)), "ami-", "resolve:ssm")


def _five_blocks(lab: Lab) -> str:
    template = lab.template("blocks")
    return lab.refused(
        lambda: _created(lab, "blocks", template, _blocks(5)), "InstanceRequirements", "overrides"
    )


def _latest_version(lab: Lab) -> str:
    template, ec2 = lab.template("version"), lab.clients("ec2")
    made = ec2.create_launch_template_version(
        LaunchTemplateId=template, LaunchTemplateData={"ImageId": lab.image, "InstanceType": "t3.micro"}
    )
    version = made["LaunchTemplateVersion"]["VersionNumber"]
    [found] = ec2.describe_launch_templates(LaunchTemplateIds=[template])["LaunchTemplates"]
    if (version, found["LatestVersionNumber"], found["DefaultVersionNumber"]) != (2, 2, 1):
        raise Falsified(f"new {version}, latest {found['LatestVersionNumber']}")
    return "latest 2, default 1"


ASSUMPTIONS: Final = (
    Assumption(
        "image-id-with-warm-pool",
        "A group whose template holds an image id takes a warm pool.",
        _GUIDE,
        "infra/program/entries/group.py",
        "PutWarmPool is refused",
        _image_with_pool,
    ),
    Assumption(
        "mixed-group-with-warm-pool",
        "A group of several on-demand types takes a warm pool.",
        "AWS, What's New, November 2025: warm pools with mixed instances policies; refused before",
        "infra/components/capacity/capacity_group.py",
        "PutWarmPool is refused",
        _mixed_with_pool,
    ),
    Assumption(
        "parameter-image",
        "A group without warm pool takes a template that names its image by a parameter.",
        _GUIDE,
        "infra/program/entries/group.py",
        "CreateAutoScalingGroup is refused",
        _parameter_accepted,
    ),
    Assumption(
        "parameter-image-refuses-warm-pool",
        "With such a template a warm pool is refused.",
        _GUIDE,
        "infra/program/entries/group.py",
        "PutWarmPool is accepted",
        _parameter_with_pool,
    ),
    Assumption(
        "parameter-image-refuses-requirements",
        "Such a template and instance requirements do not go together.",
        _GUIDE,
        "infra/program/entries/group.py",
        "CreateAutoScalingGroup is accepted",
        _parameter_with_requirements,
    ),
    Assumption(
        "five-requirement-blocks",
        "A group takes at most four blocks of instance requirements.",
        "CreateAutoScalingGroup, LaunchTemplateOverrides",
        "infra/schema/capacity.py",
        "a group of five is accepted",
        _five_blocks,
    ),
    Assumption(
        "template-versions",
        "A new version of a template is its latest and not its default.",
        "CreateLaunchTemplateVersion",
        "infra/components/capacity/launch_template.py",
        "other numbers",
        _latest_version,
    ),
)
