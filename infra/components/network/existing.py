"""Lookup of an existing network; unsuitable settings fail the preview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from contracts import names
from infra import schema
from infra.scope import Scope


@dataclass(frozen=True)
class ExistingNetwork:
    """An existing network; ``subnet_ids`` by zone."""

    vpc_id: pulumi.Output[str]
    subnet_ids: Mapping[str, pulumi.Output[str]]
    security_group_ids: tuple[pulumi.Output[str], ...]


def look_up(scope: Scope, settings: schema.Network) -> ExistingNetwork:
    """Look up the network of ``settings``; the outputs raise ``pulumi.RunError`` if it is unsuitable."""
    vpc = str(settings.vpc_id)
    _refuse_to_leave_instances(scope, vpc)
    return ExistingNetwork(
        _vpc(scope, vpc),
        {zone: _subnet(scope, vpc, zone, subnet) for zone, subnet in settings.subnets.items()},
        tuple(_security_group(scope, vpc, group) for group in settings.security_groups),
    )


def instances(
    scope: Scope,
    filters: Mapping[str, Sequence[str]] | None = None,
    states: Sequence[str] = ("pending", "running", "stopping", "stopped"),
) -> aws.ec2.GetInstancesResult:
    """Look up the stack's instances; ``filters`` are EC2's."""
    all_filters = {f"tag:{names.TAG_STACK}": [scope.stack], **(filters or {})}
    return aws.ec2.get_instances(
        filters=[
            aws.ec2.GetInstancesFilterArgs(name=name, values=[*values])
            for name, values in all_filters.items()
        ],
        instance_state_names=[*states],
        opts=scope.invoke_options,
    )


def _refuse_to_leave_instances(scope: Scope, vpc: str) -> None:
    """Refuse another VPC than that of running instances: AWS would not delete what they use, half-way."""
    if outside := len(set(instances(scope).ids) - set(instances(scope, {"vpc-id": [vpc]}).ids)):
        raise _error(
            "vpcId",
            f"must be the VPC in which instances of the stack run, {outside} of them not in {vpc}: "
            "stop them with capacity.target: 0 first, or make a second stack",
        )


def _vpc(scope: Scope, vpc: str) -> pulumi.Output[str]:
    def check(result: aws.ec2.GetVpcResult) -> str:
        # EFS and interface endpoints need DNS (VPC guide, "DNS attributes for your VPC").
        if not (result.enable_dns_support and result.enable_dns_hostnames):
            raise _error("vpcId", f"must be a VPC with DNS support and DNS host names; {vpc} lacks one")
        return vpc

    vpc_id: pulumi.Output[str] = aws.ec2.get_vpc_output(id=vpc, opts=scope.invoke_options).apply(check)
    return vpc_id


def _subnet(scope: Scope, vpc: str, zone: str, subnet: str) -> pulumi.Output[str]:
    def check(result: aws.ec2.GetSubnetResult) -> str:
        key = f"subnets.{zone}"
        if result.vpc_id != vpc:
            raise _error(key, f"must be a subnet of {vpc}; {subnet} is in {result.vpc_id}")
        if result.availability_zone != zone:
            raise _error(key, f"must be a subnet in {zone}; {subnet} is in {result.availability_zone}")
        if result.map_public_ip_on_launch:
            raise _error(key, f"must be a private subnet; {subnet} gives its instances public addresses")
        return subnet

    subnet_id: pulumi.Output[str] = aws.ec2.get_subnet_output(id=subnet, opts=scope.invoke_options).apply(
        check
    )
    return subnet_id


def _security_group(scope: Scope, vpc: str, group: str) -> pulumi.Output[str]:
    def check(result: aws.ec2.GetSecurityGroupResult) -> str:
        if result.vpc_id != vpc:
            raise _error("securityGroups", f"must be groups of {vpc}; {group} is in {result.vpc_id}")
        return group

    group_id: pulumi.Output[str] = aws.ec2.get_security_group_output(
        id=group, opts=scope.invoke_options
    ).apply(check)
    return group_id


def _error(key: str, problem: str) -> pulumi.RunError:
    return pulumi.RunError(f"gpu-spot:network.{key} {problem}")
