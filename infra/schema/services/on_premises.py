"""Settings of ``services[].onPremises``: workers on hosts outside AWS."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from infra.schema.base import Model

TrustAnchor: TypeAlias = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:rolesanywhere:[a-z0-9-]+:\d{12}:trust-anchor/[0-9a-f-]{36}$")
]

Principal: TypeAlias = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/[A-Za-z0-9_+=,.@/-]+$", max_length=600)
]


class OnPremises(Model):
    """Access for workers on premises. Without any key the stack creates the IAM policy, but no role."""

    trust_anchor: TrustAnchor | None = None
    """ARN of an IAM Roles Anywhere trust anchor. Hosts with a certificate of it may assume the role."""
    organizational_unit: Annotated[str, Field(pattern=r"^[^\x00-\x1f*?$]+$", max_length=64)] | None = None
    """Organizational unit (OU) that the subject of a host's certificate must have."""
    principals: Annotated[tuple[Principal, ...], Field(max_length=10)] = ()
    """ARNs of IAM roles and users that may assume the role."""

    @field_validator("organizational_unit")
    @classmethod
    def _needs_a_trust_anchor(cls, unit: str | None, info: ValidationInfo) -> str | None:
        if unit is not None and info.data.get("trust_anchor", "") is None:
            raise ValueError(f"{unit!r} without trustAnchor, allowed: with trustAnchor")
        return unit
