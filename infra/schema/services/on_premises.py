"""The shape of ``services[].onPremises``: hosts of one's own that run the same workers."""

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
    """Who may register workers that run elsewhere; without a key a policy is declared, and nobody has it."""

    trust_anchor: TrustAnchor | None = None
    """Of IAM Roles Anywhere: hosts whose certificates come from it may take the role."""
    organizational_unit: Annotated[str, Field(pattern=r"^[^\x00-\x1f*?$]+$", max_length=64)] | None = None
    """Only those whose certificate's subject has this OU."""
    principals: Annotated[tuple[Principal, ...], Field(max_length=10)] = ()
    """Roles and users who may take it."""

    @field_validator("organizational_unit")
    @classmethod
    def _of_certificates(cls, unit: str | None, info: ValidationInfo) -> str | None:
        if unit is not None and info.data.get("trust_anchor", "") is None:
            raise ValueError(f"{unit!r} without trustAnchor, allowed: beside it")
        return unit
