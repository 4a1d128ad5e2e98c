"""The dev stack with four services of different capacity: the launch options of each group role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pulumi_on_moto import deploy, load
from pulumi_on_moto.sandbox import AwsClients, sandbox

ROOT = Path(__file__).resolve().parents[2]
AMI = "ami-0123456789abcdef0"
L4 = {"acceleratorNames": ["L4"], "accelerators": {"max": 1}, "memoryGiB": {"max": 64}, "vcpus": {"min": 8}}


def capacity(**values: Any) -> dict[str, Any]:
    return {"target": 2, "allocationStrategy": "capacity-optimized", **values}


SERVICES = {
    "images": capacity(kind="mixed-asg", instanceTypes=["g5.xlarge", "p3dn.24xlarge"], amis={"p3dn": AMI}),
    "wanted": capacity(kind="mixed-asg", instanceRequirements=L4),
    "fleet": capacity(kind="spot-fleet", instanceRequirements=L4),
    "batch": capacity(
        kind="spot-fleet",
        fleetType="request",
        instanceTypes=["g5.xlarge", "g5.12xlarge"],
        unit="gpus",
    ),
}


def overrides(clients: AwsClients) -> dict[str, Any]:
    groups = clients("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return {
        group["AutoScalingGroupName"].rpartition("-")[0].removeprefix("gpu-spot-dev-"): [
            (override["InstanceType"], "LaunchTemplateSpecification" in override)
            for override in group["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]
        ]
        for group in groups
    }


def seen() -> dict[str, Any]:
    services = [{"name": name, "capacity": capacity} for name, capacity in SERVICES.items()]
    with sandbox("us-west-2") as clients:
        deployment = deploy(clients, load(ROOT, "dev", {"services": services}))
        fleets = deployment.of_type("aws:ec2/spotFleetRequest:SpotFleetRequest")
        described = clients("ec2").describe_spot_fleet_requests()["SpotFleetRequestConfigs"]
        targets = {
            one["SpotFleetRequestId"]: one["SpotFleetRequestConfig"]["TargetCapacity"] for one in described
        }
        return {
            "groups": overrides(clients),
            "fleets": {fleet.name: targets[fleet.id] for fleet in fleets},
            "images": sorted(
                version["LaunchTemplateData"]["ImageId"]
                for version in clients("ec2").describe_launch_template_versions(Versions=["$Latest"])[
                    "LaunchTemplateVersions"
                ]
                if "images" in version["LaunchTemplateName"]
            ),
        }
