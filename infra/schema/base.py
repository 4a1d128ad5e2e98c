"""What all settings share: a strict, frozen model and the small types that several of them use.

Types of what the node agent is told, too, stand in ``contracts.limits``.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel


def _number(value: object) -> object:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value  # pydantic says what is wrong with it


Number: TypeAlias = Annotated[float, BeforeValidator(_number, json_schema_input_type=float | str)]
"""Also as text: `pulumi config set --path` writes a number with a fraction so."""

Count: TypeAlias = Annotated[int, Field(ge=0, le=5000)]

REGION: Final = r"^[a-z]{2}(-[a-z]+)+-\d$"
Region: TypeAlias = Annotated[str, Field(pattern=REGION)]

Image: TypeAlias = Annotated[str, Field(pattern=r"^(ami-[0-9a-f]{8,17}|/[A-Za-z0-9_./-]+)$")]
"""An AMI id, or the path of a parameter that holds one."""

TagKey: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9+\-=.,_:@]{1,128}$")]
"""What instance metadata can show: no spaces, no slashes (EC2 user guide, "Access tags using IMDS")."""

TagValue: TypeAlias = Annotated[str, Field(max_length=256)]

Email: TypeAlias = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$", max_length=254)]

Retention: TypeAlias = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 3653
]
"""Days that CloudWatch Logs accepts (``PutRetentionPolicy``), the commonly used ones."""


class Model(BaseModel):
    """Frozen, strict, camelCase in YAML, no unknown keys; what stands below a field describes its key.

    The order of a model's fields matters where a validator looks at an earlier one.
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
    """Something is wrong with one ``key`` below a model, though only the whole model shows it."""

    def __init__(self, key: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.key = key


def unique(names: list[str], what: str) -> None:
    """Raise ``ValueError`` for a name that stands twice; ``what`` says of what they are the names."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two {what} are named {name!r}, allowed: each name once")
