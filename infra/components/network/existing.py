"""A network that is already there, looked up: what would not work in it ends the preview."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import schema
from infra.scope import Scope


@dataclass(frozen=True)
class Existing:
    """A network of somebody else's; ``subnet_ids`` by zone."""

    vpc_id: pulumi.Output[str]
    subnet_ids: Mapping[str, pulumi.Output[str]]
    security_group_ids: tuple[pulumi.Output[str], ...]


def look_up(scope: Scope, settings: schema.Network) -> Existing:
    """Return the network that ``settings`` name; its outputs raise ``pulumi.RunError`` for what is wrong."""
    vpc = str(settings.vpc_id)
    return Existing(
        _vpc(scope, vpc),
        {zone: _subnet(scope, vpc, zone, subnet) for zone, subnet in settings.subnets.items()},
        tuple(_security_group(scope, vpc, group) for group in settings.security_groups),
    )


def _vpc(scope: Scope, vpc: str) -> pulumi.Output[str]:
    def check(found: aws.ec2.GetVpcResult) -> str:
        # EFS and interface endpoints are found by names (VPC guide, "DNS attributes for your VPC").
        if not (found.enable_dns_support and found.enable_dns_hostnames):
            raise _error("vpcId", f"{vpc} has not both DNS attributes, allowed: DNS support and hostnames on")
        return vpc

    looked_up: pulumi.Output[str] = aws.ec2.get_vpc_output(id=vpc, opts=scope.asking).apply(check)
    return looked_up


def _subnet(scope: Scope, vpc: str, zone: str, subnet: str) -> pulumi.Output[str]:
    def check(found: aws.ec2.GetSubnetResult) -> str:
        key = f"subnets.{zone}"
        if found.vpc_id != vpc:
            raise _error(key, f"{subnet} is in {found.vpc_id}, allowed: subnets of {vpc}")
        if found.availability_zone != zone:
            raise _error(key, f"{subnet} is in {found.availability_zone}, allowed: subnets in {zone}")
        if found.map_public_ip_on_launch:
            raise _error(key, f"{subnet} gives instances public addresses, allowed: private subnets")
        return subnet

    looked_up: pulumi.Output[str] = aws.ec2.get_subnet_output(id=subnet, opts=scope.asking).apply(check)
    return looked_up


def _security_group(scope: Scope, vpc: str, group: str) -> pulumi.Output[str]:
    def check(found: aws.ec2.GetSecurityGroupResult) -> str:
        if found.vpc_id != vpc:
            raise _error("securityGroups", f"{group} is in {found.vpc_id}, allowed: groups of {vpc}")
        return group

    looked_up: pulumi.Output[str] = aws.ec2.get_security_group_output(id=group, opts=scope.asking).apply(
        check
    )
    return looked_up


def _error(key: str, problem: str) -> pulumi.RunError:
    return pulumi.RunError(f"gpu-spot:network.{key}: {problem}")
