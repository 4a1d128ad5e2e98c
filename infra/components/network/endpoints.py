"""Ways to AWS's services that stay inside the VPC."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, get_args

import pulumi
import pulumi_aws as aws

from infra.scope import Scope
from userdata.agent.aws.permissions import Need

_GATEWAYS: Final = ("s3", "dynamodb")
"""Free, so always there: an archive, a dataset and a heartbeat need no NAT gateway."""

_EVERY: Final[frozenset[Need]] = frozenset(get_args(Need))

INTERFACES: Final[Mapping[str, frozenset[Need]]] = {
    "autoscaling": frozenset({"hooks"}),
    "ec2": frozenset({"attached", "tenants", "volume"}),
    "ecr.api": frozenset({"image"}),
    "ecr.dkr": frozenset({"image"}),
    "logs": _EVERY,
    "monitoring": _EVERY,
    "secretsmanager": frozenset({"queue", "secret"}),
    "sqs": frozenset({"sqs"}),
    "ssm": _EVERY,
    "ssmmessages": _EVERY,
}
"""AWS's name of each service that instances call, and what an instance is there for when it does.

Each costs money by the hour in each zone. Not ``ec2messages``: Systems Manager's agent does without it since
its version 3.3.40.0 (Systems Manager guide, "Reference: ec2messages, ssmmessages, and other API operations").
Not EFS: mounting is NFS.
"""

_PREFIXES: Final = ("com.amazonaws", "cn.com.amazonaws")
"""What AWS's names of services start with; in China it differs from one service to the next."""


@dataclass(frozen=True)
class EndpointsArgs:
    """``interfaces`` are AWS's names of services, ``clients`` is who may use their endpoints.

    ``subnet_ids`` by zone. Without route tables there are no gateway endpoints.
    """

    scope: Scope
    vpc_id: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    route_table_ids: Collection[pulumi.Input[str]]
    clients: pulumi.Input[str]
    interfaces: Collection[str]


class Endpoints(pulumi.ComponentResource):
    """Produces: gateway endpoints; interface endpoints in the private subnets and their security group."""

    def __init__(self, name: str, args: EndpointsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the endpoints."""
        super().__init__("gpu-spot:infra:Endpoints", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        for service in _GATEWAYS if args.route_table_ids else ():
            endpoint_name = args.scope.name("endpoint", service)
            aws.ec2.VpcEndpoint(
                endpoint_name,
                vpc_id=args.vpc_id,
                # Of gateways the same in every partition.
                service_name=f"{_PREFIXES[0]}.{args.scope.region}.{service}",
                vpc_endpoint_type="Gateway",
                route_table_ids=list(args.route_table_ids),
                tags=args.scope.tags(endpoint_name),
                opts=self._child,
            )
        if args.interfaces:
            self._interfaces()
        self.register_outputs({})

    def _interfaces(self) -> None:
        args, group = self._args, self._security_group()
        for service in args.interfaces:
            name = args.scope.name("endpoint", service.replace(".", "-"))
            found = self._looked_up(service)
            # Of zones alone, which a first preview knows: it refuses before there are subnets.
            zones = found.availability_zones.apply(partial(_common_zones, service, list(args.subnet_ids)))
            aws.ec2.VpcEndpoint(
                name,
                vpc_id=args.vpc_id,
                service_name=found.service_name,
                vpc_endpoint_type="Interface",
                subnet_ids=pulumi.Output.all(zones, dict(args.subnet_ids)).apply(
                    lambda known: [known[1][zone] for zone in known[0]]
                ),
                security_group_ids=[group.id],
                # The services' usual names lead here, so that no client is configured.
                private_dns_enabled=True,
                tags=args.scope.tags(name),
                opts=self._child,
            )

    def _looked_up(self, service: str) -> pulumi.Output[aws.ec2.GetVpcEndpointServiceResult]:
        """Return what AWS says of a service: its name here, and the zones that it is in."""
        found: pulumi.Output[aws.ec2.GetVpcEndpointServiceResult] = aws.ec2.get_vpc_endpoint_service_output(
            service_type="Interface",
            filters=[
                aws.ec2.GetVpcEndpointServiceFilterArgs(
                    name="service-name",
                    values=[f"{prefix}.{self._args.scope.region}.{service}" for prefix in _PREFIXES],
                )
            ],
            opts=self._args.scope.asking,
        )
        return found

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
    """Return the services whose endpoints instances with ``needs`` use, and ``extra`` ones; sorted."""
    return sorted({name for name, by in INTERFACES.items() if not by.isdisjoint(needs)} | set(extra))


def _common_zones(service: str, ours: Collection[str], its: Collection[str]) -> list[str]:
    """Return the zones that can have an endpoint; instances in the others use those, too."""
    found = [zone for zone in ours if zone in its]
    if not found:
        raise pulumi.RunError(
            f"no endpoint of {service} in {', '.join(ours)}, allowed: one of {', '.join(sorted(its))}"
        )
    return found
