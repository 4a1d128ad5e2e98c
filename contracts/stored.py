"""How a dataclass is stored: the names of its fields, its form, and the error of a value that is refused."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

T = TypeVar("T")


class ContractError(ValueError):
    """A stored value that its reader cannot use; one line names the path, the value and what is allowed."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message

    def below(self, step: str) -> ContractError:
        """Return the error as it reads one level above, where ``step`` leads to it."""
        if not step:
            return self
        joint = "." if self.path and not self.path.startswith("[") else ""
        return ContractError(self.message, f"{step}{joint}{self.path}")


@dataclass(frozen=True)
class Stored:
    """The name under which a field is stored, where that is not its own in camelCase."""

    name: str


@dataclass(frozen=True)
class RaisedTo:
    """A number below ``least`` is read as that."""

    least: float


class FieldMark(enum.Enum):
    """What else is special about a field."""

    REQUIRED = "required"
    """Must be stored, though it has a default in Python."""
    OR_DEFAULT = "or default"
    """What makes no sense counts as not stored."""
    INLINE = "inline"
    """A dataclass whose keys stand among those of the one that holds it."""
    IN_KEY = "in key"
    """Not stored as a value: the item's key says it, and the caller passes it to `parse_item`."""


@dataclass(frozen=True)
class Form:
    """How a dataclass is stored, see `stored`."""

    keys: Literal["camelCase", "as named"] = "camelCase"
    is_list: bool = False
    is_open: bool = False
    has_defaults: bool = False
    is_empty_at_default: bool = False


STRICT: Final = Form()
"""Of a dataclass that says nothing: keys in camelCase, no others, without what equals its default."""


def stored(
    *,
    keys: Literal["camelCase", "as named"] = "camelCase",
    is_list: bool = False,
    is_open: bool = False,
    has_defaults: bool = False,
    is_empty_at_default: bool = False,
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that says how a dataclass is stored.

    Args:
        keys: how a field's name becomes the stored one.
        is_list: as a list of its values in the fields' order, without names; a truth value is 0 or 1.
        is_open: keys that are not known are ignored when it is read: a later version may have written them.
        has_defaults: values that equal their default are written, too.
        is_empty_at_default: where all values equal their default none is: JSON has no infinity.
    """

    def mark(cls: type[T]) -> type[T]:
        cls.__stored_as__ = Form(keys, is_list, is_open, has_defaults, is_empty_at_default)  # type: ignore[attr-defined]
        return cls

    return mark


def camel_case(name: str) -> str:
    """Return a field's name as it is stored where nothing else is said."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
