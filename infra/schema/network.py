"""The shape of ``network``."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from infra.schema.base import Model

_DOCKER_BRIDGE: Final = "172.17.0.0/16"
"""Docker's default bridge: on an instance in such a network, answers to its neighbours go to containers."""


class Network(Model):
    """The VPC. A zone's letter gives it one of eight fixed slots in ``cidr``: adding a zone moves none.

    ``apart_from`` are networks that will be connected to this one (offices, peered VPCs). ``endpoints`` says
    which AWS services are reached inside the VPC: S3 and DynamoDB, which is free, or all that workers need.
    """

    apart_from: tuple[str, ...] = ()
    cidr: str
    zones: Annotated[tuple[str, ...], Field(min_length=1, max_length=6)]
    egress: Literal["nat-gateway", "nat-gateway-per-zone", "none"] = "nat-gateway"
    endpoints: Literal["gateway", "interface"] = "gateway"
    flow_logs: Literal["none", "rejected", "all"] = "none"

    @field_validator("apart_from")
    @classmethod
    def _networks(cls, cidrs: tuple[str, ...]) -> tuple[str, ...]:
        for cidr in cidrs:
            _network(cidr)
        return cidrs

    @field_validator("cidr")
    @classmethod
    def _network_address(cls, cidr: str, info: ValidationInfo) -> str:
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
            if region and zone not in {f"{region}{letter}" for letter in "abcdefgh"}:
                raise ValueError(f"{zone!r} is not a zone of {region}, allowed: {region}a to {region}h")
            if zones.count(zone) > 1:
                raise ValueError(f"{zone!r} is listed twice, allowed: each zone once")
        return zones

    @field_validator("endpoints")
    @classmethod
    def _way_to_aws(cls, endpoints: str, info: ValidationInfo) -> str:
        if endpoints == "gateway" and info.data.get("egress") == "none":
            raise ValueError("'gateway' with egress 'none' cuts workers off from AWS, allowed: 'interface'")
        return endpoints


def _network(cidr: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError as error:
        raise ValueError(f"not an IPv4 network ({error}), allowed: such as 10.20.0.0/16") from None
