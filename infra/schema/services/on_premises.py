"""Settings of ``services[].onPremises``: workers on hosts outside AWS."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from infra.schema.base import Model, check_region

TrustAnchor: TypeAlias = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:rolesanywhere:[a-z0-9-]+:\d{12}:trust-anchor/[0-9a-f-]{36}$")
]

Principal: TypeAlias = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/[A-Za-z0-9_+=,.@/-]+$", max_length=600)
]

HostName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$")]
"""A host name as the node agent accepts it."""


class ListedHost(Model):
    """A host outside AWS, with an IAM identity of its own."""

    name: HostName
    """Host name, also the common name (CN) in the subject of the host's certificate."""
    gpus: Annotated[int, Field(ge=1, le=16)]
    """Number of GPUs. At most this number times `slotsPerGpu` workers of the host count."""
    address: Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$")] | None = None
    """IPv4 address at which proxies reach the host, with ``http``."""
    principals: Annotated[tuple[Principal, ...], Field(max_length=10)] = ()
    """ARNs of IAM roles and users that may assume the host's role, and no other host's."""

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, address: str | None) -> str | None:
        if address is not None:
            try:
                ipaddress.IPv4Address(address)
            except ValueError as error:
                raise ValueError(
                    f"must be an IPv4 address such as 192.168.1.10, not {address!r} ({error})"
                ) from None
        return address

    @field_validator("name")
    @classmethod
    def _is_no_instance(cls, name: str) -> str:
        if name == "localhost" or re.fullmatch(r"i-[0-9a-f]{8,17}", name):
            raise ValueError(f"must be a unique host name, not the ID of an instance or localhost: {name!r}")
        return name


class OnPremises(Model):
    """Workers on premises. Without `trustAnchor` and `principals` a host has an IAM policy, but no role."""

    hosts: Annotated[tuple[ListedHost, ...], Field(min_length=1, max_length=100)]
    """The hosts. Workers of others are not counted; a host that is removed loses its access."""
    trust_anchor: TrustAnchor | None = None
    """ARN of an IAM Roles Anywhere trust anchor. A host with a certificate of it may assume its role."""
    _of_the_region = field_validator("trust_anchor")(check_region)
    organizational_unit: Annotated[str, Field(pattern=r"^[^\x00-\x1f*?$]+$", max_length=64)] | None = None
    """Organizational unit (OU) that the subject of a host's certificate must have."""

    @field_validator("hosts")
    @classmethod
    def _have_one_identity_each(cls, hosts: tuple[ListedHost, ...]) -> tuple[ListedHost, ...]:
        addresses = [host.address for host in hosts if host.address is not None]
        principals = [arn for host in hosts for arn in set(host.principals)]
        for texts in ([host.name for host in hosts], addresses, principals):
            repeated = next((text for text in texts if texts.count(text) > 1), None)
            if repeated is not None:
                raise ValueError(f"{repeated!r} belongs to two hosts; list it in one of them")
        return hosts

    @field_validator("organizational_unit")
    @classmethod
    def _needs_a_trust_anchor(cls, unit: str | None, info: ValidationInfo) -> str | None:
        if unit is not None and info.data.get("trust_anchor", "") is None:
            raise ValueError(f"is {unit!r}, which needs trustAnchor; set trustAnchor, or remove this key")
        return unit
