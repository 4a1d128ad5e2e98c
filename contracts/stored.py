"""Storage format of a dataclass: names of fields, layout, and the error for an invalid value."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from contracts.sentences import joined

T = TypeVar("T")


class ContractError(ValueError):
    """An invalid stored value; the message has the path, the value and what is allowed."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return joined(self.path, self.message)

    def below(self, step: str) -> ContractError:
        """Return the error with ``step`` prepended to its path."""
        if not step:
            return self
        joint = "." if self.path and not self.path.startswith("[") else ""
        return ContractError(self.message, f"{step}{joint}{self.path}")

    def about(self, subject: str) -> ContractError:
        """Return the error with the text that it is in before its path."""
        return ContractError(str(self) if self.path else self.message, subject)


@dataclass(frozen=True)
class Stored:
    """Stored key of a field, if it is not the field's name in camelCase."""

    name: str


@dataclass(frozen=True)
class RaisedTo:
    """Reads a number below ``minimum`` as ``minimum``."""

    minimum: float


class FieldMark(enum.Enum):
    """Special handling of a field."""

    REQUIRED = "required"
    """Must be stored, although it has a default in Python."""
    SPARSE = "sparse"
    """Not stored at its default, also in a layout with defaults: texts without the value stay as they are."""
    OR_DEFAULT = "or default"
    """An invalid value is read as the default."""
    INLINE = "inline"
    """A dataclass whose keys are stored among those of its owner."""
    IN_KEY = "in key"
    """Part of the item's key, not an attribute; the caller passes it to `parse_item`."""


@dataclass(frozen=True)
class Form:
    """Storage layout of a dataclass, see `stored`."""

    keys: Literal["camelCase", "as named"] = "camelCase"
    is_list: bool = False
    is_open: bool = False
    has_defaults: bool = False
    is_empty_at_default: bool = False


STRICT: Final = Form()
"""Layout without `stored`: keys in camelCase, unknown keys rejected, defaults omitted."""


def stored(
    *,
    keys: Literal["camelCase", "as named"] = "camelCase",
    is_list: bool = False,
    is_open: bool = False,
    has_defaults: bool = False,
    is_empty_at_default: bool = False,
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that sets the storage layout of a dataclass.

    Args:
        keys: How a field's name becomes its stored key.
        is_list: Store a list of values in field order, without keys; a boolean is 0 or 1.
        is_open: Ignore unknown keys when reading: a later version may have written them.
        has_defaults: Also store values that equal their default.
        is_empty_at_default: Store no value if all equal their default: JSON has no infinity.
    """

    def mark(cls: type[T]) -> type[T]:
        cls.__stored_as__ = Form(keys, is_list, is_open, has_defaults, is_empty_at_default)  # type: ignore[attr-defined]
        return cls

    return mark


def camel_case(name: str) -> str:
    """Convert a field's name to its default stored key."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
