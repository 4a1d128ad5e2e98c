"""What AWS refuses about images, warm pools and requirements is refused here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from pulumi_on_moto import Deployment, LocalCloudError, ResourceRequest
from pulumi_on_moto.mapping.requirements import check, check_of_fleet

RESOLVED = "resolve:ssm:/aws/service/deeplearning/latest"
WANTED = {"VCpuCount": {"Min": 4}, "MemoryMiB": {"Min": 1}}
NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def tidy(deployment: Deployment) -> Iterator[None]:
    """Take away what a test made: the deployment is shared."""
    yield
    autoscaling, ec2 = deployment.clients("autoscaling"), deployment.clients("ec2")
    for group in autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]:
        if group["AutoScalingGroupName"].startswith("refusing-"):
            autoscaling.delete_auto_scaling_group(AutoScalingGroupName=group["AutoScalingGroupName"])
    for template in ec2.describe_launch_templates()["LaunchTemplates"]:
        if template["LaunchTemplateName"].startswith("refusing-"):
            ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])


def template(deployment: Deployment, image: str) -> dict[str, str]:
    reply = deployment.clients("ec2").create_launch_template(
        LaunchTemplateName=f"refusing-{next(NUMBERS)}", LaunchTemplateData={"ImageId": image}
    )
    return {"LaunchTemplateId": reply["LaunchTemplate"]["LaunchTemplateId"], "Version": "1"}


def create(deployment: Deployment, image: str, overrides: list[dict[str, Any]]) -> str:
    name = f"refusing-{next(NUMBERS)}"
    subnet = deployment.of_type("aws:ec2/subnet:Subnet")[0].id
    launch = {"LaunchTemplateSpecification": template(deployment, image), "Overrides": overrides}
    deployment.clients("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=1,
        VPCZoneIdentifier=subnet,
        MixedInstancesPolicy={"LaunchTemplate": launch},
    )
    return name


def test_a_warm_pool_needs_an_image_id(deployment: Deployment) -> None:
    autoscaling = deployment.clients("autoscaling")
    plain = [{"InstanceType": "g5.xlarge"}]
    refused, taken = (create(deployment, image, plain) for image in (RESOLVED, "ami-0123456789abcdef0"))
    with pytest.raises(ClientError, match="warm pool behind a launch template whose image is resolve:ssm:"):
        autoscaling.put_warm_pool(AutoScalingGroupName=refused, MinSize=1)
    autoscaling.put_warm_pool(AutoScalingGroupName=taken, MinSize=1)


def test_requirements_need_an_image_id(deployment: Deployment) -> None:
    wanted = [{"InstanceRequirements": WANTED}]
    with pytest.raises(ClientError, match=r'Invalid id: "resolve:ssm:.*" \(expecting "ami-..."\)'):
        create(deployment, RESOLVED, wanted)
    create(deployment, "ami-0123456789abcdef0", wanted)


def test_four_sets_of_requirements_are_the_most(deployment: Deployment) -> None:
    with pytest.raises(ClientError, match="at most 4 sets of InstanceRequirements, not 5"):
        create(deployment, "ami-0123456789abcdef0", [{"InstanceRequirements": WANTED}] * 5)


def test_what_a_program_declares_is_refused_before_it_is_expanded(deployment: Deployment) -> None:
    draft = ResourceRequest("aws:autoscaling/group:Group", "g", "urn", deployment.clients, {})
    named = template(deployment, RESOLVED)
    specification = {"launchTemplateId": named["LaunchTemplateId"], "version": "1"}
    with pytest.raises(LocalCloudError, match=r'"g": Invalid id: .resolve:ssm:'):
        check(draft, specification, [{"instanceRequirements": {"vcpuCount": {"min": 4}}}])
    check(draft, specification, [{"instanceType": "g5.xlarge"}])


def test_a_fleet_needs_an_upper_end(deployment: Deployment) -> None:
    draft = ResourceRequest("aws:ec2/spotFleetRequest:SpotFleetRequest", "f", "urn", deployment.clients, {})
    with pytest.raises(LocalCloudError, match="memoryMib: min 1024 is above max, sent as 0"):
        check_of_fleet(draft, [{"instanceRequirements": {"memoryMib": {"min": 1024}}}])
    check_of_fleet(draft, [{"instanceRequirements": {"memoryMib": {"min": 1024, "max": 4096}}}])
