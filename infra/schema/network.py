"""Settings of ``network``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from infra.schema.base import PRIVATE, REGION, Model, is_private

_DOCKER_BRIDGE: Final = "172.17.0.0/16"
"""Docker's default bridge. In a VPC that overlaps it, replies to other instances would go to containers."""


VpcId: TypeAlias = Annotated[str, Field(pattern=r"^vpc-[0-9a-f]{8,17}$")]
SubnetId: TypeAlias = Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")]
SecurityGroupId: TypeAlias = Annotated[str, Field(pattern=r"^sg-[0-9a-f]{8,17}$")]
EndpointService: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9.-]{1,29}$")]
"""The part of an endpoint service's name after the region, such as ``sts``."""


class Network(Model):
    """The VPC of the stack: created by it, or existing. An existing VPC keeps its routes."""

    vpc_id: VpcId | None = None
    """ID of an existing VPC. Default: the stack creates one."""
    subnets: dict[str, SubnetId] = Field(default_factory=dict)
    """Private subnets of an existing VPC, one for each Availability Zone."""
    # Five of an interface (VPC guide, "Amazon VPC quotas"), less the workers' and one of the entry's kind: of
    # HTTP workers, of nodes, of a shared host, of a cluster.
    security_groups: Annotated[tuple[SecurityGroupId, ...], Field(max_length=3)] = ()
    """Additional security groups of instances in an existing VPC."""
    non_overlapping_cidrs: tuple[str, ...] = ()
    """IPv4 CIDR blocks of networks that will be connected to the VPC (offices, peered VPCs). ``cidr`` must
    not overlap them."""
    cidr: str | None = None
    """IPv4 CIDR block of the VPC that the stack creates, /16 to /20. Each zone letter has a fixed part of
    it. It cannot be changed."""
    zones: Annotated[tuple[str, ...], Field(min_length=1, max_length=6)] = Field(
        default_factory=lambda values: tuple(values.get("subnets", ()))
    )
    """Availability Zones of the instances. Required unless the VPC exists; default there: the zones of
    ``subnets``."""
    egress: Literal["public", "nat-gateway", "nat-gateway-per-zone", "none"] = Field(
        default_factory=lambda values: "none" if values.get("vpc_id") else "public"
    )
    """How instances in a created VPC reach the internet. ``public``: each has a public address, which costs
    $0.005 an hour while it runs; its security group admits nothing from the internet. The others have no
    public address: a NAT gateway, from $33 a month, or no way out. Default: ``public``."""
    endpoints: Literal["gateway", "interface", "none"] = Field(
        default_factory=lambda values: (
            "none" if values.get("vpc_id") else "interface" if values.get("egress") == "none" else "gateway"
        )
    )
    """VPC endpoints. ``gateway``: S3 and DynamoDB, free of charge. ``interface``: all services that the
    workers need, each $7.30 a month and zone. Default: ``gateway``; with ``egress: none`` ``interface``; in
    an existing VPC ``none``."""
    extra_endpoints: Annotated[tuple[EndpointService, ...], Field(max_length=20)] = ()
    """Additional interface endpoints, for services that the workload calls: the part of the service name
    after the region, such as ``sts``."""
    flow_logs: Literal["none", "rejected", "all"] = "none"
    """Connections of a created VPC that are recorded in flow logs."""

    @property
    def is_closed(self) -> bool:
        """Whether the stack creates a VPC without a route to the internet."""
        return self.cidr is not None and self.egress == "none"

    @field_validator("subnets", "security_groups")
    @classmethod
    def _only_in_an_existing_vpc(cls, ids: Collection[str], info: ValidationInfo) -> Collection[str]:
        if ids and info.data.get("vpc_id", "") is None:
            raise ValueError("needs an existing VPC; set vpcId, or remove this key")
        return ids

    @field_validator("subnets")
    @classmethod
    def _in_each_zone(cls, subnets: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if info.data.get("vpc_id") and not subnets:
            raise ValueError("is required with vpcId; list one private subnet of the VPC for each zone")
        for zone, subnet in subnets.items():
            if list(subnets.values()).count(subnet) > 1:
                raise ValueError(f"{subnet} is used for {zone} and another zone; use a subnet of each zone")
        return subnets

    @field_validator("non_overlapping_cidrs", "cidr", "egress", "flow_logs")
    @classmethod
    def _only_in_a_created_vpc(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("vpc_id") and value not in ((), None, "none"):
            shown = list(value) if isinstance(value, tuple) else value
            raise ValueError(f"is {shown!r}, but an existing VPC has its own; remove it or vpcId")
        return value

    @field_validator("non_overlapping_cidrs")
    @classmethod
    def _networks(cls, cidrs: tuple[str, ...]) -> tuple[str, ...]:
        for cidr in cidrs:
            _network(cidr)
        return cidrs

    @field_validator("cidr")
    @classmethod
    def _network_address(cls, cidr: str | None, info: ValidationInfo) -> str | None:
        if cidr is None:
            if info.data.get("vpc_id", "") is None:
                raise ValueError("is required; set a block such as 10.20.0.0/16, or vpcId of an existing VPC")
            return None
        network = _network(cidr)
        if not 16 <= network.prefixlen <= 20:
            raise ValueError(f"must be a network from /16 to /20, not a /{network.prefixlen}")
        if not is_private(network):
            raise ValueError(f"must be a private network (part of {PRIVATE}), not {cidr}")
        for reserved in (*info.data.get("non_overlapping_cidrs", ()), _DOCKER_BRIDGE):
            if network.overlaps(_network(reserved)):
                owner = "Docker's bridge network" if reserved == _DOCKER_BRIDGE else "of nonOverlappingCidrs"
                raise ValueError(f"is {cidr}, which overlaps {reserved} ({owner}); choose another block")
        return cidr

    @field_validator("zones")
    @classmethod
    def _zones_of_region(cls, zones: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        region = (info.context or {}).get("region", "")
        for zone in zones:
            if re.fullmatch(REGION, region) and zone not in {f"{region}{letter}" for letter in "abcdefgh"}:
                raise ValueError(f"{zone!r} is not a zone of {region}; use {region}a to {region}h")
            if zones.count(zone) > 1:
                raise ValueError(f"{zone!r} is listed twice; list each zone once")
        subnets = info.data.get("subnets")
        if subnets and set(zones) != set(subnets):
            raise ValueError(f"must be the zones of subnets ({', '.join(subnets)}), not {', '.join(zones)}")
        return tuple(sorted(zones))

    @field_validator("endpoints")
    @classmethod
    def _reaches_aws(cls, endpoints: str, info: ValidationInfo) -> str:
        vpc_id = info.data.get("vpc_id", "")
        if endpoints == "gateway" and vpc_id:
            raise ValueError("must be 'interface' or 'none' in an existing VPC, not 'gateway'")
        if endpoints == "none" and vpc_id is None:
            raise ValueError("must be 'gateway' or 'interface' without vpcId, not 'none'")
        if endpoints == "gateway" and info.data.get("egress") == "none":
            raise ValueError(
                "must be 'interface' with egress 'none', not 'gateway', because workers need AWS's APIs"
            )
        return endpoints

    @field_validator("extra_endpoints")
    @classmethod
    def _interfaces(cls, extra: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if extra and info.data.get("endpoints", "interface") != "interface":
            raise ValueError("needs endpoints 'interface'; set that, or remove the extra endpoints")
        if gateways := {"s3", "dynamodb"} & {*extra} if info.data.get("vpc_id", "") is None else set():
            raise ValueError(f"has {min(gateways)}, whose gateway endpoint a created VPC has; remove it")
        return extra


def _network(cidr: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError as error:
        raise ValueError(f"is not an IPv4 CIDR block ({error}); write one such as 10.20.0.0/16") from None
