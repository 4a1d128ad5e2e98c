"""The VPC."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra import schema
from infra.components import fixed
from infra.components.network import existing
from infra.components.network.endpoints import Endpoints, EndpointsArgs, interfaces
from infra.components.network.flow_logs import FlowLogs, FlowLogsArgs
from infra.scope import Scope
from userdata.agent.aws.permissions import Need

_SECOND_STACK: Final = "make a second stack"
_LETTERS: Final = "abcdefgh"
_SLOT_BITS: Final = 4
"""16 blocks: eight private, then eight public, one of each for zone letters a to h."""


@dataclass(frozen=True)
class NetworkArgs:
    """``needs`` are those of all instances, ``called_by_functions`` services with an interface endpoint.

    No argument is an output: the first preview knows the subnets.
    """

    scope: Scope
    settings: schema.Network
    needs: Collection[Need]
    called_by_functions: Collection[str]
    log_retention_days: int


@dataclass(frozen=True, slots=True)
class ZonePlan:
    """The address blocks of one zone."""

    private: str
    public: str


def plan(cidr: str, zones: tuple[str, ...]) -> Mapping[str, ZonePlan]:
    """Return the blocks by zone. Each depends only on the zone's letter: other zones never move it."""
    blocks = list(ipaddress.IPv4Network(cidr).subnets(prefixlen_diff=_SLOT_BITS))
    slots = {zone: ord(zone[-1]) - ord("a") for zone in zones}
    return {zone: ZonePlan(str(blocks[slot]), str(blocks[slot + 8])) for zone, slot in slots.items()}


class Network(pulumi.ComponentResource):
    """A VPC with a private subnet in each zone, or the stack's resources in an existing VPC.

    Always declares the workers' security group (no inbound, all outbound traffic) and VPC endpoints. For a
    created VPC also its default security group without rules, a subnet and route table for instances in each
    zone, and flow logs if enabled; with egress an internet gateway; with NAT a public subnet in each zone,
    and one NAT gateway or one per zone.

    Attributes:
        subnet_ids: Subnets of instances by zone, private unless ``has_public_addresses``.
        used_subnet_ids: The same with those of removed zones in which the stack still has instances.
        public_subnet_ids: Public subnets by zone; empty for an existing VPC and one without egress.
        has_public_addresses: Whether instances have public addresses: their subnets assign them.
        security_group_ids: Those of workers: the stack's own and existing ones of the settings.
        endpoint_security_group_id: That of the interface endpoints; None without any.
    """

    vpc_id: pulumi.Output[str]
    subnet_ids: Mapping[str, pulumi.Output[str]]
    used_subnet_ids: Mapping[str, pulumi.Output[str]]
    public_subnet_ids: Mapping[str, pulumi.Output[str]]
    worker_security_group_id: pulumi.Output[str]
    security_group_ids: list[pulumi.Output[str]]
    endpoint_security_group_id: pulumi.Output[str] | None
    has_public_addresses: bool

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the network."""
        super().__init__("gpu-spot:infra:Network", name, None, opts)
        self._scope, settings = args.scope, args.settings
        self._creates_subnets = settings.cidr is not None
        self.has_public_addresses = settings.egress == "public"
        self._child = pulumi.ResourceOptions(parent=self)
        tables: Mapping[str, aws.ec2.RouteTable] = {}
        self.public_subnet_ids = {}
        extra_group_ids: tuple[pulumi.Output[str], ...] = ()
        if settings.cidr is None:
            network = existing.look_up(self._scope, settings)
            self.vpc_id, self.subnet_ids, extra_group_ids = (
                network.vpc_id,
                network.subnet_ids,
                network.security_group_ids,
            )
            self.used_subnet_ids = self.subnet_ids
        else:
            tables = self._create_vpc(settings, settings.cidr)
        self.worker_security_group_id = self._worker_security_group().id
        self.security_group_ids = [self.worker_security_group_id, *extra_group_ids]
        endpoints = Endpoints(
            self._scope.name("endpoints"),
            EndpointsArgs(
                self._scope,
                self.vpc_id,
                self.subnet_ids,
                [table.id for table in tables.values()],
                self.worker_security_group_id,
                interfaces(args.needs, settings.extra_endpoints)
                if settings.endpoints == "interface"
                else args.called_by_functions,
            ),
            self._child,
        )
        self.endpoint_security_group_id = endpoints.security_group_id
        if settings.flow_logs != "none":
            FlowLogs(
                self._scope.name("flows"),
                FlowLogsArgs(self._scope, self.vpc_id, settings.flow_logs, args.log_retention_days),
                self._child,
            )
        self.register_outputs(
            {
                "vpcId": self.vpc_id,
                "privateSubnetIds": list(self.subnet_ids.values()),
                "workerSecurityGroupId": self.worker_security_group_id,
            }
        )

    def remaining(self, current: pulumi.Output[Sequence[str]], owner: str) -> pulumi.Output[Sequence[str]]:
        """Return ``current``, subnets in the state; the output raises ``pulumi.RunError`` if one is deleted.

        ``owner`` is what stays in them, in words. Subnets of an existing VPC are not the stack's.
        """
        if not self._creates_subnets:
            return current
        return fixed.in_subnets(self.subnet_ids.values(), current, owner)

    def _create_vpc(self, settings: schema.Network, cidr: str) -> Mapping[str, aws.ec2.RouteTable]:
        """Declare a VPC; return its private route tables by zone."""
        # The stack file's zones are first.
        blocks = plan(cidr, (*settings.zones, *self._leaving_zones(settings.zones)))
        vpc = self._vpc(cidr)
        # Replacing the VPC would fail: the NAT gateway's address is in use, and all mount targets of a file
        # system must be in one VPC (EFS API, ``CreateMountTarget``).
        same = fixed.unchanged("network.cidr", cidr, vpc.cidr_block, "the VPC", _SECOND_STACK)
        self.vpc_id = pulumi.Output.all(vpc.id, same).apply(lambda values: str(values[0]))
        self._default_security_group()
        private = {zone: self._subnet("private", zone, block.private) for zone, block in blocks.items()}
        # A table per zone even with one gateway: a changed `egress` changes routes, and subnets in place.
        tables = {zone: self._route_table("private", zone) for zone in private}
        for zone, subnet in private.items():
            self._associate("private", zone, subnet, tables[zone])
        if self.has_public_addresses:
            self.public_subnet_ids = {zone: private[zone].id for zone in settings.zones}
        if settings.egress != "none":
            self._internet_access(blocks, tables, settings)
        self.used_subnet_ids = {zone: subnet.id for zone, subnet in private.items()}
        self.subnet_ids = {zone: self.used_subnet_ids[zone] for zone in settings.zones}
        return tables

    def _leaving_zones(self, zones: tuple[str, ...]) -> tuple[str, ...]:
        """Return the removed zones in which the stack has instances: their subnets and routes stay.

        The controller hands their work over to the other zones; a later ``up`` deletes what is then empty.
        Source: EC2 API reference, ``DeleteSubnet``: "You must terminate all running instances in the subnet".
        """
        region = self._scope.region
        removed = [f"{region}{letter}" for letter in _LETTERS if f"{region}{letter}" not in zones]

        def is_used(searched: Sequence[str]) -> bool:
            return bool(existing.instances(self._scope, {"availability-zone": searched}).ids)

        leaving = tuple(zone for zone in removed if is_used([zone])) if is_used(removed) else ()
        for zone in leaving:
            pulumi.log.warn(
                f"gpu-spot:network.zones: {zone} still has instances of the stack: its subnets and routes "
                "stay until they have moved, and a later `pulumi up` deletes them"
            )
        return leaving

    def _keeps_nat(self, zones: Sequence[str]) -> bool:
        """Return whether running instances have no public address, which only a launch assigns.

        They keep a NAT gateway until they have ended; a later ``up`` deletes it. Source: VPC user guide,
        "Enable internet access for a VPC using an internet gateway": "the instance must have a public IPv4
        address".
        """
        running = existing.instances(self._scope, {"availability-zone": zones}, ("running",))
        waits = len(running.ids) > len(running.public_ips)
        if waits:
            pulumi.log.warn(
                "gpu-spot:network.egress: running instances of the stack have no public address: a NAT "
                "gateway stays until they have ended, and a later `pulumi up` deletes it"
            )
        return waits

    def _vpc(self, cidr: str) -> aws.ec2.Vpc:
        name = self._scope.name("vpc")
        return aws.ec2.Vpc(
            name,
            cidr_block=cidr,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=self._scope.tags(name),
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["cidrBlock"]),
        )

    def _default_security_group(self) -> None:
        """Declare the VPC's default group, which resources without one get; no rules, so no traffic."""
        name = self._scope.name("default")
        aws.ec2.DefaultSecurityGroup(
            name, vpc_id=self.vpc_id, ingress=[], egress=[], tags=self._scope.tags(name), opts=self._child
        )

    def _internet_access(
        self,
        blocks: Mapping[str, ZonePlan],
        tables: Mapping[str, aws.ec2.RouteTable],
        settings: schema.Network,
    ) -> None:
        name = self._scope.name("internet")
        gateway = aws.ec2.InternetGateway(
            name, vpc_id=self.vpc_id, tags=self._scope.tags(name), opts=self._child
        )
        nats: Mapping[str, aws.ec2.NatGateway] = {}
        if not self.has_public_addresses or self._keeps_nat([*blocks]):
            per_zone = settings.egress == "nat-gateway-per-zone"
            nats = self._nats(blocks, gateway, settings.zones, per_zone=per_zone)
        for zone, table in tables.items():
            aws.ec2.Route(
                self._scope.name("private-out", zone),
                route_table_id=table.id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=nats[zone].id if nats else None,
                gateway_id=None if nats else gateway.id,
                opts=self._child,
            )

    def _nats(
        self,
        blocks: Mapping[str, ZonePlan],
        gateway: aws.ec2.InternetGateway,
        zones: Collection[str],
        *,
        per_zone: bool,
    ) -> Mapping[str, aws.ec2.NatGateway]:
        """Declare public subnets and NAT gateways; return each zone's gateway."""
        public = {zone: self._subnet("public", zone, block.public) for zone, block in blocks.items()}
        out = self._route_table("public")
        route = aws.ec2.Route(
            self._scope.name("public-out"),
            route_table_id=out.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.id,
            opts=self._child,
        )
        for zone, subnet in public.items():
            self._associate("public", zone, subnet, out)
        if not self.has_public_addresses:
            self.public_subnet_ids = {zone: public[zone].id for zone in zones}
        first = next(iter(public))
        # One gateway keeps its address, which others have in allow lists, when its zone is removed.
        nats = {
            zone: self._nat(("nat", zone) if per_zone else ("nat",), subnet, route=route)
            for zone, subnet in public.items()
            if per_zone or zone == first
        }
        return {zone: nats.get(zone, nats[first]) for zone in blocks}

    def _subnet(self, kind: str, zone: str, cidr: str) -> aws.ec2.Subnet:
        name = self._scope.name(kind, zone)
        return aws.ec2.Subnet(
            name,
            vpc_id=self.vpc_id,
            availability_zone=zone,
            cidr_block=cidr,
            map_public_ip_on_launch=self.has_public_addresses and kind == "private",
            tags=self._scope.tags(name),
            opts=self._child,
        )

    def _route_table(self, *parts: str) -> aws.ec2.RouteTable:
        name = self._scope.name(*parts)
        return aws.ec2.RouteTable(name, vpc_id=self.vpc_id, tags=self._scope.tags(name), opts=self._child)

    def _associate(self, kind: str, zone: str, subnet: aws.ec2.Subnet, table: aws.ec2.RouteTable) -> None:
        aws.ec2.RouteTableAssociation(
            self._scope.name(kind, zone), subnet_id=subnet.id, route_table_id=table.id, opts=self._child
        )

    def _nat(
        self, parts: tuple[str, ...], subnet: aws.ec2.Subnet, *, route: pulumi.Resource
    ) -> aws.ec2.NatGateway:
        name = self._scope.name(*parts)
        address = aws.ec2.Eip(name, domain="vpc", tags=self._scope.tags(name), opts=self._child)
        # A NAT gateway needs the internet route, which none of its inputs refers to.
        return aws.ec2.NatGateway(
            name,
            allocation_id=address.id,
            subnet_id=subnet.id,
            tags=self._scope.tags(name),
            # Another subnet replaces it; the address is associated with one gateway at a time.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[route], delete_before_replace=True),
        )

    def _worker_security_group(self) -> aws.ec2.SecurityGroup:
        name = self._scope.name("workers")
        group = aws.ec2.SecurityGroup(
            name,
            vpc_id=self.vpc_id,
            description="GPU workers: nothing in, everything out",
            tags=self._scope.tags(name),
            opts=self._child,
        )
        aws.vpc.SecurityGroupEgressRule(
            self._scope.name("workers-out"),
            security_group_id=group.id,
            ip_protocol="-1",
            cidr_ipv4="0.0.0.0/0",
            description="images, packages, AWS",
            tags=self._scope.tags(name),
            opts=self._child,
        )
        return group
