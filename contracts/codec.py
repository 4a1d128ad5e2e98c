"""Strict JSON into frozen dataclasses: every key known, every value in its bounds, every error the full path.

``dump`` is the inverse of ``parse``. Types are classes of JSON, dataclasses, ``Literal``, ``tuple[X, ...]``,
``dict[K, V]``, ``X | None``, each ``Annotated`` with bounds where it has some.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from contracts.limits import Bound

T = TypeVar("T")


class ContractError(ValueError):
    """A stored text that its reader cannot use; one line names the path, the value and what is allowed."""


def parse(cls: type[T], data: object, path: str = "") -> T:
    """Build ``cls`` (a dataclass) from decoded JSON with camelCase keys.

    Raises:
        ContractError: an unknown or missing key, a value of another type or one that is not allowed.
    """
    if not isinstance(data, Mapping):
        raise ContractError(f"{path or 'configuration'}: {data!r} is not an object")
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {_camel(f.name): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(data) - set(fields)):
        raise ContractError(f"{_join(path, unknown[0])}: unknown key; allowed: {', '.join(sorted(fields))}")
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key in data:
            values[field.name] = _value(hints[field.name], data[key], _join(path, key))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ContractError(f"{_join(path, key)}: missing")
    try:
        return cls(**values)
    except ValueError as error:
        raise ContractError(f"{path + ': ' if path else ''}{error}") from None


def dump(value: Any) -> Any:
    """Return what ``parse`` reads as ``value``, ready for JSON, without what equals its default."""
    if dataclasses.is_dataclass(value):
        return {
            _camel(field.name): dump(one)
            for field in dataclasses.fields(value)
            if (one := getattr(value, field.name)) != _default(field)
        }
    if isinstance(value, tuple):
        return [dump(item) for item in value]
    return value


def _default(field: dataclasses.Field[Any]) -> object:
    """Return a field's default, ``MISSING`` where it has none."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _value(hint: Any, value: object, path: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        read = _value(arguments[0], value, path)
        for bound in arguments[1:]:
            if isinstance(bound, Bound) and not bound.allows(read):
                raise ContractError(f"{path}: {value!r}; allowed: {bound}")
        return read
    if origin in (types.UnionType, typing.Union):  # only `X | None` occurs
        return None if value is None else _value(arguments[0], value, path)
    if origin is typing.Literal:
        if value not in arguments:
            raise ContractError(f"{path}: {value!r}; allowed: {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ContractError(f"{path}: {value!r} is not a list")
        return tuple(_value(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ContractError(f"{path}: {value!r} is not an object")
        return {
            _value(arguments[0], key, _join(path, key)): _value(arguments[1], item, _join(path, key))
            for key, item in value.items()
        }
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return parse(hint, value, path)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:  # exact: JSON's true is no number
        raise ContractError(f"{path}: {value!r} is not of type {hint.__name__}")
    return value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
