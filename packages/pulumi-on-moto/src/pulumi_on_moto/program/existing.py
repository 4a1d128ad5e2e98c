"""Existing resources that a program uses but does not declare."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from unittest import mock

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.utilities.utils import get_partition

from pulumi_on_moto.emulator import AwsClients

_RANGE = "10.250.0.0/16"
"""An arbitrary range: there is no traffic."""
_MAX_COMMON_NAME = 64
"""Longer names are alternative names. Source: ACM API reference, ``RequestCertificate``."""
_ALLOWS_NOTHING = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "*", "Resource": "*"}]}
)


def existing_network(
    clients: AwsClients,
    vpc: str,
    subnets: Mapping[str, str],
    security_groups: Sequence[str] = (),
    more_subnets: Sequence[tuple[str, str]] = (),
) -> None:
    """Create a VPC with private subnets (ids by zone) and security groups that have these ids.

    It has both DNS attributes, which interface endpoints and EFS need. ``more_subnets`` are further ones,
    with the zone of each.
    """
    ec2, models = clients("ec2"), "moto.ec2.models"
    with mock.patch(f"{models}.vpcs.random_vpc_id", return_value=vpc):
        ec2.create_vpc(CidrBlock=_RANGE)
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    blocks = ipaddress.IPv4Network(_RANGE).subnets(new_prefix=24)
    for (zone, subnet), block in zip((*subnets.items(), *more_subnets), blocks, strict=False):
        with mock.patch(f"{models}.subnets.random_subnet_id", return_value=subnet):
            ec2.create_subnet(VpcId=vpc, CidrBlock=str(block), AvailabilityZone=zone)
    for group in security_groups:
        with mock.patch(f"{models}.security_groups.random_security_group_id", return_value=group):
            ec2.create_security_group(GroupName=group, Description="given", VpcId=vpc)


def existing_certificates(clients: AwsClients, arns: Mapping[str, str]) -> None:
    """Create certificates in Certificate Manager with these ARNs, by ARN for a domain name."""
    from moto.acm.models import acm_backends  # imported on use: few programs have certificates

    backend = acm_backends[DEFAULT_ACCOUNT_ID][clients("acm").meta.region_name]
    for arn, domain in arns.items():
        common_name = domain
        while len(common_name) > _MAX_COMMON_NAME:
            common_name = common_name.partition(".")[2]
        requested = clients("acm").request_certificate(
            DomainName=common_name, SubjectAlternativeNames=[domain]
        )["CertificateArn"]
        certificate = backend._certificates.pop(requested)
        certificate.arn = arn
        backend._certificates[arn] = certificate


def existing_zones(clients: AwsClients, zones: Mapping[str, str]) -> None:
    """Create hosted zones with these ids, by id for a domain name."""
    from moto.route53.models import route53_backends

    backend = route53_backends[DEFAULT_ACCOUNT_ID][get_partition(clients("ec2").meta.region_name)]
    for zone_id, domain in zones.items():
        reply = clients("route53").create_hosted_zone(Name=domain, CallerReference=zone_id)
        zone = backend.zones.pop(reply["HostedZone"]["Id"].rpartition("/")[2])
        zone.resource_id = zone_id
        backend.zones[zone_id] = zone


def existing_policies(clients: AwsClients, arns: Iterable[str]) -> None:
    """Create managed policies with these ARNs, in any account; AWS's managed policies exist already."""
    iam = clients("iam")
    backend = iam_backends[DEFAULT_ACCOUNT_ID][get_partition(clients("ec2").meta.region_name)]
    for arn in dict.fromkeys(arns):
        account, _, policy_path = arn.split(":", 4)[4].partition(":policy")
        path, _, name = policy_path.rpartition("/")
        if account != "aws":
            with mock.patch.object(backend, "account_id", account):
                iam.create_policy(PolicyName=name, Path=f"{path}/", PolicyDocument=_ALLOWS_NOTHING)
