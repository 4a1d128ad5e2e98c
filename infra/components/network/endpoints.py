"""Ways to AWS's services that stay inside the VPC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.scope import Scope

_GATEWAYS: Final = ("s3", "dynamodb")
"""Free, so always there: an archive, a dataset and a heartbeat need no NAT gateway."""

_INTERFACES: Final = {
    "ec2": "ec2",
    "autoscaling": "autoscaling",
    "ssm": "ssm",
    "ssmmessages": "ssm-messages",
    "ec2messages": "ec2-messages",
    "ecr.api": "ecr-api",
    "ecr.dkr": "ecr-images",
    "logs": "logs",
    "monitoring": "monitoring",
    "sqs": "sqs",
    "elasticfilesystem": "efs",
}
"""AWS's name of each service that instances call, and ours."""


@dataclass(frozen=True)
class EndpointsArgs:
    """``interfaces``: whether there are interface endpoints, too; ``clients``: who may use them."""

    scope: Scope
    vpc_id: pulumi.Input[str]
    subnet_ids: Sequence[pulumi.Input[str]]
    route_table_ids: Sequence[pulumi.Input[str]]
    clients: pulumi.Input[str]
    interfaces: bool


class Endpoints(pulumi.ComponentResource):
    """Produces: gateway endpoints; interface endpoints in every private subnet and their security group."""

    def __init__(self, name: str, args: EndpointsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the endpoints."""
        super().__init__("gpu-spot:infra:Endpoints", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        for service in _GATEWAYS:
            endpoint_name = args.scope.name("endpoint", service)
            aws.ec2.VpcEndpoint(
                endpoint_name,
                vpc_id=args.vpc_id,
                service_name=self._service(service),
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
        for service, short in _INTERFACES.items():
            name = args.scope.name("endpoint", short)
            aws.ec2.VpcEndpoint(
                name,
                vpc_id=args.vpc_id,
                service_name=self._service(service),
                vpc_endpoint_type="Interface",
                subnet_ids=list(args.subnet_ids),
                security_group_ids=[group.id],
                # The services' usual names lead here, so that no client is configured.
                private_dns_enabled=True,
                tags=args.scope.tags(name),
                opts=self._child,
            )

    def _service(self, service: str) -> str:
        return f"com.amazonaws.{self._args.scope.region}.{service}"

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
