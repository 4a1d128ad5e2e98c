"""The network, created or existing, and its VPC endpoints."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from gpu_spot.declared import stackfile
from infra.components.network.endpoints import INTERFACES, interfaces
from pulumi_on_moto.emulator import sandbox
from pulumi_on_moto.running.clock import simulated
from rehearsal.commands.deployed import deployed
from tests.apart import apart
from tests.e2e.world import START
from tests.infra import program
from tests.infra.declared import ROOT, STACKS, Run, edited_file, edited_stack, run, shipped
from tests.infra.training import queue_stack

EXISTING: dict[str, Any] = {
    "vpcId": "vpc-0000000a",
    "subnets": {"us-west-2a": "subnet-0000000a", "us-west-2b": "subnet-0000000b"},
    "securityGroups": ["sg-0000000a"],
}
OF_A_NETWORK = {
    *("Vpc", "DefaultSecurityGroup", "Subnet", "RouteTable", "Route", "RouteTableAssociation"),
    *("InternetGateway", "NatGateway", "Eip", "VpcEndpoint", "FlowLog"),
}
REACHED_OTHERWISE = {"s3": "a gateway", "dynamodb": "a gateway", "elasticfilesystem": "NFS"}
ENDPOINTS_BY_PREFIX = {"cloudwatch": {"monitoring"}, "ecr": {"ecr.api", "ecr.dkr"}}


def kinds(deployed: Run) -> set[str]:
    return {one["type"].rpartition(":")[2] for one in deployed.declared if one["custom"]}


@pytest.mark.parametrize("mode", ["known", "unknown"])
@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_in_an_existing_network_declares_none(stack: str, mode: str) -> None:
    assert kinds(shipped(stack)) & OF_A_NETWORK
    assert not kinds(edited_stack({"network": EXISTING}, stack, mode)) & OF_A_NETWORK


def test_resources_use_the_subnets_and_groups_of_an_existing_network() -> None:
    deployed = edited_stack({"network": EXISTING}, "prod")
    subnets = list(EXISTING["subnets"].values())
    assert deployed.the("Group", "inference-primary")["vpcZoneIdentifiers"] == subnets
    assert [one["subnetId"] for one in deployed.of("MountTarget").values()] == subnets
    for group in deployed.of("SecurityGroup").values():
        assert group["vpcId"] == EXISTING["vpcId"]
    template = deployed.the("LaunchTemplate", "inference-primary")
    assert template["vpcSecurityGroupIds"] == ["gpu-spot-prod-workers-id", "sg-0000000a"]


def test_an_existing_network_gets_interface_endpoints_if_enabled() -> None:
    network = EXISTING | {"endpoints": "interface", "extraEndpoints": ["sts"]}
    deployed = edited_stack({"network": network})
    found = sorted(one["serviceName"] for one in deployed.of("VpcEndpoint").values())
    assert all(one["vpcEndpointType"] == "Interface" for one in deployed.of("VpcEndpoint").values())
    assert found == [
        f"com.amazonaws.us-west-2.{service}"
        for service in ("autoscaling", "logs", "monitoring", "ssm", "ssmmessages", "sts")
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"vpcId": "vpc-0000000d", "subnets": {}}, "DNS support and DNS host names; vpc-0000000d lacks one"),
        (
            {"subnets": {"us-west-2b": "subnet-000000ee"}},
            "subnets.us-west-2b must be a subnet of vpc-0000000a; subnet-000000ee is in vpc-0000000e",
        ),
        (
            {"subnets": {"us-west-2a": "subnet-0000000b"}},
            "network.subnets.us-west-2a must be a subnet in us-west-2a; subnet-0000000b is in us-west-2b",
        ),
        ({"subnets": {"us-west-2b": "subnet-000000ff"}}, "gives its instances public addresses"),
        (
            {"securityGroups": ["sg-0000000e"]},
            "must be groups of vpc-0000000a; sg-0000000e is in vpc-0000000e",
        ),
    ],
)
def test_an_unsuitable_network_fails_the_preview(change: dict[str, Any], problem: str) -> None:
    network = {**EXISTING, **change}
    network["subnets"] = network["subnets"] or EXISTING["subnets"]
    error, _ = apart(program.refused, "unknown", "dev", edited_file({"network": network}))
    assert problem in error


def test_another_network_is_refused_while_instances_run() -> None:
    error, _ = apart(program.refused, "known", "leaving", edited_file({"network": EXISTING}))
    assert "vpcId must be the VPC in which instances of the stack run, 1 of them not in vpc-0000000a" in error


def test_endpoints_are_only_in_zones_of_their_service() -> None:
    prod = shipped("prod")
    found = [one for one in prod.of("VpcEndpoint").values() if one["vpcEndpointType"] == "Interface"]
    assert found
    for endpoint in found:
        assert endpoint["subnetIds"] == [f"gpu-spot-prod-private-us-west-2{zone}-id" for zone in "abc"]


def test_a_service_in_none_of_the_zones_is_rejected() -> None:
    in_another = edited_file({"network.zones": ["us-west-2d"]}, "prod")
    error, _ = apart(program.refused, "unknown", "prod", in_another)
    assert re.search(
        ".* has no endpoint in us-west-2d; use a subnet in one of us-west-2a, us-west-2b, us-west", error
    )


@pytest.mark.parametrize("stack", STACKS)
def test_there_is_an_endpoint_for_each_service_that_an_instance_may_call(stack: str) -> None:
    deployed = edited_stack({"network.egress": "none", "network.endpoints": "interface"}, stack)
    called = {
        action.partition(":")[0]
        for name, policy in deployed.of("RolePolicy").items()
        if name.endswith("-instance")
        for statement in json.loads(policy["policy"])["Statement"]
        for action in statement["Action"]
    } - REACHED_OTHERWISE.keys()
    wanted = {name for one in called for name in ENDPOINTS_BY_PREFIX.get(one, {one})}
    found = {
        one["serviceName"].removeprefix("com.amazonaws.us-west-2.")
        for one in deployed.of("VpcEndpoint").values()
        if one["vpcEndpointType"] == "Interface"
    }
    assert found == wanted


def test_work_that_pulls_images_and_moves_volumes_has_all_endpoints() -> None:
    assert interfaces({"image", "hooks", "volume", "secret", "sqs"}) == sorted(INTERFACES)
    assert interfaces({"work"}, ["sts", "ssm"]) == ["logs", "monitoring", "ssm", "ssmmessages", "sts"]


def test_previews_have_the_permissions_of_their_lookups_only() -> None:
    def allowed(network: dict[str, Any]) -> set[str]:
        previews = {"repository": "team@1/gpu-spot@2"}
        policy = edited_stack({"network": network, "identity": {"previews": previews}}).policy("previews")
        return {action for one in policy["Statement"] for action in one["Action"]}

    own = {"cidr": "10.20.0.0/16", "zones": ["us-west-2a"]}
    # Of removed zones.
    assert {one for one in allowed(own) if one.startswith("ec2:")} == {"ec2:DescribeInstances"}
    assert "ec2:DescribeSubnets" in allowed(EXISTING)
    assert "ec2:DescribeVpcEndpointServices" in allowed(own | {"endpoints": "interface"})


def deployed_into_an_existing_network() -> tuple[Any, ...]:
    with simulated(START), sandbox("us-west-2", 1) as clients:
        ec2 = clients("ec2")
        before = len(ec2.describe_vpcs()["Vpcs"])
        config = stackfile.load(ROOT, "dev")
        deployed(clients, replace(config, values={**config.values, "gpu-spot:network": EXISTING}))
        [template] = [
            ec2.describe_launch_template_versions(LaunchTemplateId=one["LaunchTemplateId"], Versions=["1"])
            for one in ec2.describe_launch_templates()["LaunchTemplates"]
            if "primary" in one["LaunchTemplateName"]
        ]
        groups = clients("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        given = template["LaunchTemplateVersions"][0]["LaunchTemplateData"]["SecurityGroupIds"]
        return (
            len(ec2.describe_vpcs()["Vpcs"]) - before,
            {one["VPCZoneIdentifier"] for one in groups},
            "sg-0000000a" in given,
        )


def test_it_deploys_into_an_existing_network() -> None:
    subnets = "subnet-0000000a,subnet-0000000b"
    assert apart(deployed_into_an_existing_network) == (1, {subnets}, True)


def test_public_addresses_need_no_gateway_and_admit_nothing() -> None:
    """The same subnets and tables as with NAT; functions in the VPC, which get no address, have endpoints."""
    public = run("known")
    assert not [*public.of("NatGateway"), *public.of("Eip")]
    assert all(subnet["mapPublicIpOnLaunch"] for subnet in public.of("Subnet").values())
    assert {route["gatewayId"] for route in public.of("Route").values()} == {"gpu-spot-dev-internet-id"}
    assert not public.of("SecurityGroupIngressRule")

    endpoints = queue_stack().of("VpcEndpoint").values()
    assert {e["serviceName"] for e in endpoints if e["vpcEndpointType"] == "Interface"} == {
        "com.amazonaws.us-west-2.secretsmanager"
    }


def test_instances_without_an_address_keep_a_gateway() -> None:
    """Instances that were launched behind NAT would be cut off: the program looks them up."""
    kept = run("known", edited_file({}), "leaving")
    assert list(kept.of("NatGateway")) == ["nat"]
    assert all("natGatewayId" in route for name, route in kept.of("Route").items() if "private" in name)
    assert all(
        subnet["mapPublicIpOnLaunch"] is name.startswith("private")
        for name, subnet in kept.of("Subnet").items()
    )


def test_a_removed_zone_keeps_its_subnets_until_its_instances_have_left() -> None:
    files = {"accessPoints": [{"name": "checkpoints", "path": "/checkpoints"}]}
    file = edited_file({"network.zones": ["us-west-2b", "us-west-2c"], "storage.fileSystem": files})
    gone, leaving = run("known", file), run("known", file, "leaving")
    assert [name for kind in ("Subnet", "MountTarget") for name in gone.of(kind) if name.endswith("2a")] == []
    for kind in ("Subnet", "RouteTable", "RouteTableAssociation", "Route", "MountTarget"):
        assert any(name.endswith("us-west-2a") for name in leaving.of(kind)), kind
    kept = leaving.physical("private-us-west-2a-id")
    for group in leaving.of("Group").values():
        assert len(group["vpcZoneIdentifiers"]) == 2
        assert kept not in group["vpcZoneIdentifiers"]
    [gateway] = leaving.of("NatGateway").values()
    assert gateway["subnetId"] == leaving.physical("public-us-west-2b-id")
    assert leaving.config("inference")["zones"] == [*("us-west-2b", "us-west-2c")]
