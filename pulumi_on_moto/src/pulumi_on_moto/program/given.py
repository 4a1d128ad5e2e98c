"""What a program finds in a real account and does not declare: made here before it looks."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from unittest import mock

from pulumi_on_moto.sandbox import AwsClients

_RANGE = "10.250.0.0/16"
"""Addresses matter to nobody here."""


def given_network(
    clients: AwsClients, vpc: str, subnets: Mapping[str, str], security_groups: Sequence[str] = ()
) -> None:
    """Make a VPC with private subnets (ids by zone) and security groups that have these ids.

    It has both DNS attributes, as VPCs that interface endpoints and EFS stand in must.
    """
    ec2, models = clients("ec2"), "moto.ec2.models"
    with mock.patch(f"{models}.vpcs.random_vpc_id", return_value=vpc):
        ec2.create_vpc(CidrBlock=_RANGE)
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    blocks = ipaddress.IPv4Network(_RANGE).subnets(new_prefix=24)
    for (zone, subnet), block in zip(subnets.items(), blocks, strict=False):
        with mock.patch(f"{models}.subnets.random_subnet_id", return_value=subnet):
            ec2.create_subnet(VpcId=vpc, CidrBlock=str(block), AvailabilityZone=zone)
    for group in security_groups:
        with mock.patch(f"{models}.security_groups.random_security_group_id", return_value=group):
            ec2.create_security_group(GroupName=group, Description="given", VpcId=vpc)
