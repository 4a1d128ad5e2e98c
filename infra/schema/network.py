"""The shape of ``network``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from infra.schema.base import REGION, Model

_DOCKER_BRIDGE: Final = "172.17.0.0/16"
"""Docker's default bridge: on an instance in such a network, answers to its neighbours go to containers."""


VpcId: TypeAlias = Annotated[str, Field(pattern=r"^vpc-[0-9a-f]{8,17}$")]
SubnetId: TypeAlias = Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")]
SecurityGroupId: TypeAlias = Annotated[str, Field(pattern=r"^sg-[0-9a-f]{8,17}$")]
EndpointService: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9.-]{1,29}$")]
"""As AWS names it after the region, such as ``sts`` in ``com.amazonaws.us-west-2.sts``."""


class Network(Model):
    """The VPC: the stack's own, or one that is there, whose ways out are its owner's."""

    vpc_id: VpcId | None = None
    """A VPC that is there; without it the stack has one of its own."""
    subnets: dict[str, SubnetId] = Field(default_factory=dict)
    """Private subnets of an existing VPC, one for each zone."""
    security_groups: Annotated[tuple[SecurityGroupId, ...], Field(max_length=4)] = ()
    """What instances get in an existing VPC beside the stack's own group."""
    apart_from: tuple[str, ...] = ()
    """Networks that will be connected to it (offices, peered VPCs) and that ``cidr`` must not overlap."""
    cidr: str | None = None
    """Of the stack's own VPC, in which each zone's letter has a fixed place. It cannot be changed."""
    zones: Annotated[tuple[str, ...], Field(min_length=1, max_length=6)] = Field(
        default_factory=lambda given: tuple(given.get("subnets", ()))
    )
    """Where instances may be; needed but in an existing VPC, where they are those of ``subnets``."""
    egress: Literal["nat-gateway", "nat-gateway-per-zone", "none"] = Field(
        default_factory=lambda given: "none" if given.get("vpc_id") else "nat-gateway"
    )
    """How instances of an own VPC reach the internet; left out, through one NAT gateway."""
    endpoints: Literal["gateway", "interface", "none"] = Field(
        default_factory=lambda given: "none" if given.get("vpc_id") else "gateway"
    )
    """Which AWS services are reached inside the VPC: by ``gateway`` S3 and DynamoDB, which is free, by
    ``interface`` all that workers need. Left out, ``gateway``, and in an existing VPC what it has."""
    extra_endpoints: Annotated[tuple[EndpointService, ...], Field(max_length=20)] = ()
    """Services that the work itself calls, as AWS names them after the region."""
    flow_logs: Literal["none", "rejected", "all"] = "none"
    """Which connections of an own VPC are logged."""

    @field_validator("subnets", "security_groups")
    @classmethod
    def _of_an_existing_network(cls, given: Collection[str], info: ValidationInfo) -> Collection[str]:
        if given and info.data.get("vpc_id", "") is None:
            raise ValueError("without vpcId, allowed: in an existing network, which vpcId names")
        return given

    @field_validator("subnets")
    @classmethod
    def _in_each_zone(cls, subnets: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if info.data.get("vpc_id") and not subnets:
            raise ValueError("missing, allowed: a private subnet of the network for each zone, by zone")
        for zone, subnet in subnets.items():
            if list(subnets.values()).count(subnet) > 1:
                raise ValueError(f"{subnet} stands for {zone} and another zone, allowed: each subnet once")
        return subnets

    @field_validator("apart_from", "cidr", "egress", "flow_logs")
    @classmethod
    def _of_an_own_network(cls, given: Any, info: ValidationInfo) -> Any:
        if info.data.get("vpc_id") and given not in ((), None, "none"):
            raise ValueError(f"{given!r} in an existing network, allowed: without vpcId")
        return given

    @field_validator("apart_from")
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
                raise ValueError("missing, allowed: such as 10.20.0.0/16, or vpcId for an existing network")
            return None
        network = _network(cidr)
        if not 16 <= network.prefixlen <= 20:
            raise ValueError(f"a /{network.prefixlen} network, allowed: /16 to /20")
        if not network.is_private or network.is_loopback or network.is_link_local:
            raise ValueError(f"{cidr} is not for private use, allowed: parts of 10/8, 172.16/12, 192.168/16")
        for other in (*info.data.get("apart_from", ()), _DOCKER_BRIDGE):
            if network.overlaps(_network(other)):
                who = "Docker's bridge network" if other == _DOCKER_BRIDGE else "a network in 'apartFrom'"
                raise ValueError(f"{cidr} overlaps {other}, {who}, allowed: one that overlaps neither")
        return cidr

    @field_validator("zones")
    @classmethod
    def _zones_of_region(cls, zones: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        region = (info.context or {}).get("region", "")
        for zone in zones:
            if re.fullmatch(REGION, region) and zone not in {f"{region}{letter}" for letter in "abcdefgh"}:
                raise ValueError(f"{zone!r} is not a zone of {region}, allowed: {region}a to {region}h")
            if zones.count(zone) > 1:
                raise ValueError(f"{zone!r} is listed twice, allowed: each zone once")
        subnets = info.data.get("subnets")
        if subnets and set(zones) != set(subnets):
            raise ValueError(f"{', '.join(zones)}, allowed: those of subnets: {', '.join(subnets)}")
        return zones

    @field_validator("endpoints")
    @classmethod
    def _way_to_aws(cls, endpoints: str, info: ValidationInfo) -> str:
        vpc_id = info.data.get("vpc_id", "")
        if endpoints == "gateway" and vpc_id:
            raise ValueError("'gateway' in an existing network, allowed there: 'interface', 'none'")
        if endpoints == "none" and vpc_id is None:
            raise ValueError("'none' without vpcId, allowed: 'gateway', 'interface'")
        if endpoints == "gateway" and info.data.get("egress") == "none":
            raise ValueError("'gateway' with egress 'none' cuts workers off from AWS, allowed: 'interface'")
        return endpoints

    @field_validator("extra_endpoints")
    @classmethod
    def _interfaces(cls, extra: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if extra and info.data.get("endpoints", "interface") != "interface":
            raise ValueError("without interface endpoints, allowed: with endpoints 'interface'")
        return extra


def _network(cidr: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError as error:
        raise ValueError(f"not an IPv4 network ({error}), allowed: such as 10.20.0.0/16") from None
