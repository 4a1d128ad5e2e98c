"""What a cluster's nodes may reach in the stack's network, and who may reach the cluster's API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.components.network.network import Network
from infra.scope import Scope

_HTTPS: Final = 443


@dataclass(frozen=True)
class ClusterIngressArgs:
    """Arguments of ``ClusterIngress``.

    Attributes:
        security_group_id: The cluster's security group, which EKS creates. Managed nodes and Karpenter's have
            it, and their pods; it admits itself only (EKS guide, "View Amazon EKS security group
            requirements for clusters").
        api_sources: CIDR blocks that may connect to the private API endpoint.
    """

    scope: Scope
    security_group_id: pulumi.Input[str]
    network: Network
    api_sources: Sequence[str] = ()


class ClusterIngress(pulumi.ComponentResource):
    """Rules from the cluster to interface endpoints, and from networks to the API endpoint.

    With private DNS every client in the VPC uses the interface endpoints, so nodes without access to them
    could call neither EC2 nor ECR.
    """

    rules: list[pulumi.Resource]

    def __init__(
        self, name: str, args: ClusterIngressArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the rules."""
        super().__init__("gpu-spot:infra:ClusterIngress", name, None, opts)
        self._scope, self._child = args.scope, pulumi.ResourceOptions(parent=self)
        self.rules = [
            self._rule(
                f"api-{cidr.replace('.', '-').replace('/', '-')}",
                args.security_group_id,
                f"Kubernetes API from {cidr}",
                cidr=cidr,
            )
            for cidr in args.api_sources
        ]
        if args.network.endpoint_security_group_id is not None:
            self.rules.append(
                self._rule(
                    "endpoints-in-cluster",
                    args.network.endpoint_security_group_id,
                    "HTTPS from the cluster",
                    source=args.security_group_id,
                )
            )
        self.register_outputs({})

    def _rule(
        self,
        short: str,
        group: pulumi.Input[str],
        description: str,
        *,
        source: pulumi.Input[str] | None = None,
        cidr: str | None = None,
    ) -> aws.vpc.SecurityGroupIngressRule:
        name = self._scope.name(short, limit=100)
        return aws.vpc.SecurityGroupIngressRule(
            name,
            security_group_id=group,
            ip_protocol="tcp",
            from_port=_HTTPS,
            to_port=_HTTPS,
            referenced_security_group_id=source,
            cidr_ipv4=cidr,
            description=description,
            tags=self._scope.tags(name),
            opts=self._child,
        )
