"""Security groups of an HTTP service: callers to load balancer, to proxies, to workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts.agent.config import HttpProxy
from infra.components.network.network import Network
from infra.schema.services.http import Http
from infra.scope import Scope

LISTEN_PORT: Final = HttpProxy.listen_port
HEALTH_PORT: Final = HttpProxy.health_port
_MAX_NAME_LENGTH: Final = 255
"""Of logical names: a rule of a security group has no name in AWS."""


@dataclass(frozen=True)
class HttpSecurityGroupsArgs:
    """``slots`` is the maximum number of workers of one instance of ``service``."""

    scope: Scope
    service: str
    settings: Http
    slots: int
    network: Network


class HttpSecurityGroups(pulumi.ComponentResource):
    """The groups of the load balancer, the proxies and the workers; each admits the one before it only."""

    load_balancer_id: pulumi.Output[str]
    proxies_id: pulumi.Output[str]
    workers_id: pulumi.Output[str]

    def __init__(
        self, name: str, args: HttpSecurityGroupsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the groups."""
        super().__init__("gpu-spot:infra:HttpSecurityGroups", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        settings = args.settings
        self.load_balancer_id = self._group("http", "callers in, proxies out")
        self.proxies_id = self._group("http-proxies", "requests from the load balancer in")
        self.workers_id = self._group("http-workers", "requests and checks from proxies in")
        port = settings.listener_port
        for caller, source, network in self._callers():
            self._ingress("http", self.load_balancer_id, (port, port), caller, source=source, network=network)
        for part, to_proxies in (("http", LISTEN_PORT), ("http-checks", HEALTH_PORT)):
            self._egress(part, self.load_balancer_id, to_proxies, self.proxies_id)
            ports = (to_proxies, to_proxies)
            self._ingress(
                "http-proxies", self.proxies_id, ports, "load-balancer", source=self.load_balancer_id
            )
        check_port = settings.workers.check_port
        for worker_ports in ((settings.port, settings.port + args.slots - 1), (check_port, check_port)):
            self._ingress("http-workers", self.workers_id, worker_ports, "proxies", source=self.proxies_id)
        self.register_outputs({"workersId": self.workers_id})

    def _callers(self) -> Iterator[tuple[str, pulumi.Input[str] | None, str | None]]:
        """Yield each caller's name, with its security group or its network."""
        yield "workers", self._args.network.worker_security_group_id, None
        for caller in self._args.settings.allowed_sources:
            is_group = caller.startswith("sg-")
            yield caller, caller if is_group else None, None if is_group else caller

    def _group(self, part: str, description: str) -> pulumi.Output[str]:
        args = self._args
        name = args.scope.name(args.service, part)
        group = aws.ec2.SecurityGroup(
            name,
            vpc_id=args.network.vpc_id,
            description=f"{args.service}: {description}",
            tags=args.scope.tags(name, group=args.service),
            opts=self._child,
        )
        group_id: pulumi.Output[str] = group.id
        return group_id

    def _ingress(
        self,
        part: str,
        group: pulumi.Input[str],
        ports: tuple[int, int],
        source_name: str,
        *,
        source: pulumi.Input[str] | None = None,
        network: str | None = None,
    ) -> None:
        args = self._args
        suffix = source_name.replace(".", "-").replace("/", "-")
        aws.vpc.SecurityGroupIngressRule(
            # With the port: another port is another rule.
            args.scope.name(args.service, part, suffix, str(ports[0]), limit=_MAX_NAME_LENGTH),
            security_group_id=group,
            ip_protocol="tcp",
            from_port=ports[0],
            to_port=ports[1],
            referenced_security_group_id=source,
            cidr_ipv4=network,
            description=f"requests from {source_name}",
            tags=args.scope.tags(args.scope.name(args.service, part), group=args.service),
            opts=self._child,
        )

    def _egress(self, part: str, group: pulumi.Input[str], port: int, target: pulumi.Input[str]) -> None:
        args = self._args
        name = args.scope.name(args.service, part, "out", limit=_MAX_NAME_LENGTH)
        aws.vpc.SecurityGroupEgressRule(
            name,
            security_group_id=group,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            referenced_security_group_id=target,
            description="requests and health checks to proxies",
            tags=args.scope.tags(args.scope.name(args.service, part), group=args.service),
            opts=self._child,
        )
