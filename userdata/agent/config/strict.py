"""Strict JSON into frozen dataclasses: every key known, every type exact, every error names the full path."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from userdata.agent.machine.errors import ConfigError

T = TypeVar("T")


def parse(cls: type[T], data: object, path: str = "") -> T:
    """Build ``cls`` (a dataclass) from decoded JSON with camelCase keys.

    Raises:
        ConfigError: an unknown or missing key, a value of another type or one that is not allowed.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path or 'configuration'}: {data!r} is not an object")
    hints = typing.get_type_hints(cls)
    fields = {_camel(f.name): f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(data) - set(fields)):
        raise ConfigError(f"{_join(path, unknown[0])}: unknown key; allowed: {', '.join(sorted(fields))}")
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key in data:
            values[field.name] = _value(hints[field.name], data[key], _join(path, key))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{_join(path, key)}: missing")
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(f"{path + ': ' if path else ''}{error}") from None


def _value(hint: Any, value: object, path: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:  # only `X | None` occurs
        return None if value is None else _value(arguments[0], value, path)
    if origin is typing.Literal:
        if value not in arguments:
            raise ConfigError(f"{path}: {value!r}; allowed: {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{path}: {value!r} is not a list")
        return tuple(_value(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return parse(hint, value, path)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:  # exact: JSON's true is no number
        raise ConfigError(f"{path}: {value!r} is not of type {hint.__name__}")
    return value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
