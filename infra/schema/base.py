"""The base model of all settings and the small types that several of them use.

Types of values that the node agent reads as well are in ``contracts.limits``.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic.alias_generators import to_camel

from infra.catalogue import cpu_types, regions


def _number(value: object) -> object:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value  # pydantic reports the error


FROM_TEXT: Final = BeforeValidator(_number)
"""Of a float: also as text, as `pulumi config set --path` writes a number with a fraction."""


def _without_accelerators(name: str) -> str:
    cpu_types.architecture(name)
    return name


CpuType: TypeAlias = Annotated[str, AfterValidator(_without_accelerators)]
"""An instance type without accelerators."""

Count: TypeAlias = Annotated[int, Field(ge=0, le=5000)]

REGION: Final = r"^[a-z]{2,4}(-[a-z]+)+-\d$"
Region: TypeAlias = Annotated[str, Field(pattern=REGION), AfterValidator(regions.check)]

Image: TypeAlias = Annotated[str, Field(pattern=r"^(ami-[0-9a-f]{8,17}|/[A-Za-z0-9_./-]+)$")]
"""An AMI ID, or the path of a parameter that holds one."""

_PRIVATE: Final = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
PRIVATE: Final = "10/8, 100.64/10, 172.16/12 or 192.168/16"

StackName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,39}$")]
TagKey: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9+\-=._:@]{1,128}$")]
"""Characters that instance metadata allows in a tag key, no spaces and slashes, and IAM, no commas.

Sources: EC2 user guide, "Access tags using IMDS"; IAM API reference, ``Tag``.
"""

TagValue: TypeAlias = Annotated[str, Field(pattern=r"^[\w .:/=+@-]*$", max_length=256)]
"""Source: IAM API reference, ``Tag``; EFS, Lambda, Logs and Systems Manager allow the same."""

Email: TypeAlias = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$", max_length=254)]

Retention: TypeAlias = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 3653
]
"""Days of retention in CloudWatch Logs: the common ones of those that ``PutRetentionPolicy`` accepts."""


class Model(BaseModel):
    """A part of a stack file: frozen, strict, without unknown keys. Keys are in camelCase.

    The docstring of a field is the published reference of its key. The order of fields matters if a validator
    reads an earlier one.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        validate_default=True,
        use_attribute_docstrings=True,
    )


class WrongKeyError(ValueError):
    """An error in the value at ``key`` below a model that only a check of the whole model can find."""

    def __init__(self, key: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.key = key


def check_unique(names: list[str], plural: str) -> None:
    """Raise ``ValueError`` for a name that occurs twice; ``plural`` is what the names belong to."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two {plural} are named {name!r}; give each its own name")


def each_once(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``values``; raise ``ValueError`` for one that is listed twice."""
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value} is listed twice; list it once")
    return values


def check_region(arn: str | None, info: ValidationInfo) -> str | None:
    """Return ``arn``; raise ``ValueError`` if it is an ARN of another Region than the stack's."""
    region = (info.context or {}).get("region")
    if arn is not None and region and arn.startswith("arn:") and arn.split(":")[3] != region:
        raise ValueError(f"must be in {region}; {arn} is in another Region")
    return arn


def is_private(network: ipaddress.IPv4Network) -> bool:
    """Return whether a network is part of a private one; ``IPv4Network.is_private`` admits reserved ones."""
    return any(network.subnet_of(ipaddress.IPv4Network(private)) for private in _PRIVATE)


def check_private_networks(sources: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``sources``; raise ``ValueError`` for one that is no private IPv4 network, or listed twice."""
    for source in sources:
        try:
            network = ipaddress.IPv4Network(source)
        except ValueError as error:
            raise ValueError(f"{source!r} is not a network ({error}); write one such as 10.0.0.0/8") from None
        if not is_private(network):
            raise ValueError(f"{source} is not a private network; use part of {PRIVATE}")
        if sources.count(source) > 1:
            raise ValueError(f"{source} is listed twice; list each network once")
    return sources
