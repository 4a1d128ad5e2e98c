"""VPC endpoints of AWS services."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, get_args

import pulumi
import pulumi_aws as aws

from contracts.partitions import DNS_SUFFIXES, reversed_dns
from infra.scope import Scope
from userdata.agent.aws.permissions import Need

_GATEWAYS: Final = ("s3", "dynamodb")
"""Free, so always declared: S3 and DynamoDB need no NAT gateway."""

_ALL_NEEDS: Final[frozenset[Need]] = frozenset(get_args(Need))

INTERFACES: Final[Mapping[str, frozenset[Need]]] = {
    "autoscaling": frozenset({"hooks"}),
    "ec2": frozenset({"attached", "proxy", "run", "tenants", "volume"}),
    "ecr.api": frozenset({"image"}),
    "ecr.dkr": frozenset({"image"}),
    "logs": _ALL_NEEDS,
    "monitoring": _ALL_NEEDS,
    "secretsmanager": frozenset({"queue", "secret"}),
    "sqs": frozenset({"sqs"}),
    "ssm": _ALL_NEEDS,
    "ssmmessages": _ALL_NEEDS,
}
"""Services that instances call, by AWS's names, with the needs of instances that call them.

Each endpoint is billed by the hour in each zone. Not ``ec2messages``: the Systems Manager agent does not need
it since version 3.3.40.0 (Systems Manager guide, "Reference: ec2messages, ssmmessages, and other API
operations"). Not EFS: mounting is NFS.
"""

_PREFIXES: Final = tuple(dict.fromkeys(map(reversed_dns, DNS_SUFFIXES.values())))
"""Prefixes of service names, ``com.amazonaws`` first; in China they differ between services."""


@dataclass(frozen=True)
class EndpointsArgs:
    """Arguments of ``Endpoints``.

    Attributes:
        subnet_ids: Subnets by zone.
        route_table_ids: Empty for no gateway endpoints.
        clients: The security group that may use interface endpoints.
        interfaces: AWS's names of services with an interface endpoint.
    """

    scope: Scope
    vpc_id: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    route_table_ids: Collection[pulumi.Input[str]]
    clients: pulumi.Input[str]
    interfaces: Collection[str]


class Endpoints(pulumi.ComponentResource):
    """Gateway endpoints, and interface endpoints in the private subnets with their security group.

    Attributes:
        security_group_id: That of the interface endpoints; None without any.
    """

    security_group_id: pulumi.Output[str] | None

    def __init__(self, name: str, args: EndpointsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the endpoints."""
        super().__init__("gpu-spot:infra:Endpoints", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        for service in _GATEWAYS if args.route_table_ids else ():
            endpoint_name = args.scope.name("endpoint", service)
            aws.ec2.VpcEndpoint(
                endpoint_name,
                vpc_id=args.vpc_id,
                # The same for gateways in every partition.
                service_name=f"{_PREFIXES[0]}.{args.scope.region}.{service}",
                vpc_endpoint_type="Gateway",
                route_table_ids=list(args.route_table_ids),
                tags=args.scope.tags(endpoint_name),
                opts=self._child,
            )
        self.security_group_id = self._interfaces() if args.interfaces else None
        self.register_outputs({})

    def _interfaces(self) -> pulumi.Output[str]:
        args, group = self._args, self._security_group()
        for service in args.interfaces:
            name = args.scope.name("endpoint", service.replace(".", "-"))
            endpoint_service = self._look_up_service(service)
            # Zones are known in the first preview, subnet ids are not: a missing zone fails the preview.
            zones = endpoint_service.availability_zones.apply(
                partial(_common_zones, service, list(args.subnet_ids))
            )
            aws.ec2.VpcEndpoint(
                name,
                vpc_id=args.vpc_id,
                service_name=endpoint_service.service_name,
                vpc_endpoint_type="Interface",
                subnet_ids=pulumi.Output.all(zones, dict(args.subnet_ids)).apply(
                    lambda values: [values[1][zone] for zone in values[0]]
                ),
                security_group_ids=[group.id],
                # Clients use the services' usual names.
                private_dns_enabled=True,
                tags=args.scope.tags(name),
                opts=self._child,
            )
        group_id: pulumi.Output[str] = group.id
        return group_id

    def _look_up_service(self, service: str) -> pulumi.Output[aws.ec2.GetVpcEndpointServiceResult]:
        """Look up a service's full name and availability zones in the region."""
        result: pulumi.Output[aws.ec2.GetVpcEndpointServiceResult] = aws.ec2.get_vpc_endpoint_service_output(
            service_type="Interface",
            filters=[
                aws.ec2.GetVpcEndpointServiceFilterArgs(
                    name="service-name",
                    values=[f"{prefix}.{self._args.scope.region}.{service}" for prefix in _PREFIXES],
                )
            ],
            opts=self._args.scope.invoke_options,
        )
        return result

    def _security_group(self) -> aws.ec2.SecurityGroup:
        args, name = self._args, self._args.scope.name("endpoints")
        group = aws.ec2.SecurityGroup(
            name,
            vpc_id=args.vpc_id,
            description="Interface endpoints: HTTPS from workers, nothing out",
            tags=args.scope.tags(name),
            opts=self._child,
        )
        aws.vpc.SecurityGroupIngressRule(
            args.scope.name("endpoints-in"),
            security_group_id=group.id,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            referenced_security_group_id=args.clients,
            description="HTTPS from workers",
            tags=args.scope.tags(name),
            opts=self._child,
        )
        return group


def interfaces(needs: Collection[Need], extra: Iterable[str] = ()) -> list[str]:
    """Return the services that instances with ``needs`` call, and ``extra``, sorted."""
    return sorted({name for name, by in INTERFACES.items() if not by.isdisjoint(needs)} | set(extra))


def _common_zones(service: str, subnet_zones: Collection[str], service_zones: Collection[str]) -> list[str]:
    """Return the zones that support an endpoint; instances in other zones use those endpoints."""
    zones = [zone for zone in subnet_zones if zone in service_zones]
    if not zones:
        raise pulumi.RunError(
            f"{service} has no endpoint in {', '.join(subnet_zones)}; use a subnet in one of "
            f"{', '.join(sorted(service_zones))}"
        )
    return zones
