"""Convert Pulumi's camelCase inputs into AWS request parameters by name; unmatched inputs are errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from botocore.model import ListShape, MapShape, Shape, StructureShape

_PAIRS: Final = (("key", "value"), ("name", "value"), ("tagkey", "tagvalue"))
"""Members of the structures whose list is a mapping in Pulumi; the last are of KMS's tags."""


class UnmatchedInputError(Exception):
    """An input without a member in AWS's shape, or with a value of another type; ``path`` is its location."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"input {path!r} {problem}")
        self.path = path
        self.problem = problem


def convert(value: Any, shape: Shape, path: str) -> Any:
    """Return ``value`` in the form of ``shape``.

    Members are matched by name without regard to case and punctuation, a plural matching its singular. A
    list of one object matches a single object and the other way round, and a mapping of text matches a list
    of ``Key``/``Value`` or ``Name``/``Value``.

    Raises:
        UnmatchedInputError: a name or a type of value has no counterpart.
    """
    if isinstance(shape, StructureShape):
        return _structure(value, shape, path)
    if isinstance(shape, ListShape):
        return _list(value, shape, path)
    if isinstance(shape, MapShape):
        if not isinstance(value, Mapping):
            raise UnmatchedInputError(path, f"must be a mapping, not {value!r}")
        return {str(key): convert(item, shape.value, f"{path}.{key}") for key, item in value.items()}
    return _scalar(value, shape, path)


def member(shape: StructureShape, name: str) -> str | None:
    """Return the member of ``shape`` for the camelCase ``name``, or None."""
    members = _members(shape)
    plain = _plain(name)
    for candidate in (plain, f"{plain}s", plain.removesuffix("s")):
        if candidate in members:
            return members[candidate]
    return None


def supplied(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that have a value."""
    return {key: value for key, value in inputs.items() if value is not None}


def key_values(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as AWS's list of ``Key``/``Value``."""
    return [{"Key": key, "Value": str(value)} for key, value in tags.items()]


def _structure(value: Any, shape: StructureShape, path: str) -> dict[str, Any]:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Mapping):
        raise UnmatchedInputError(path, f"must be an object, not {value!r}")
    result: dict[str, Any] = {}
    for key, item in value.items():
        if item is None:
            continue
        name = member(shape, key)
        if name is None:
            raise UnmatchedInputError(f"{path}.{key}", f"has no counterpart in AWS's {shape.name}")
        result[name] = convert(item, shape.members[name], f"{path}.{key}")
    return result


def _list(value: Any, shape: ListShape, path: str) -> list[Any]:
    item_shape = shape.member
    if isinstance(value, Mapping) and isinstance(item_shape, StructureShape):
        names = _members(item_shape)
        for key_name, value_name in _PAIRS:
            if {key_name, value_name} <= names.keys():
                return [{names[key_name]: key, names[value_name]: str(item)} for key, item in value.items()]
        value = [value]
    if not isinstance(value, list):
        raise UnmatchedInputError(path, f"must be a list, not {value!r}")
    return [convert(item, item_shape, f"{path}[{index}]") for index, item in enumerate(value)]


def _scalar(value: Any, shape: Shape, path: str) -> Any:
    kind = shape.type_name
    if isinstance(value, (dict, list)):
        raise UnmatchedInputError(path, f"must be a value of type {kind}, not {value!r}")
    try:
        if kind in ("integer", "long"):
            if float(value) != int(float(value)):
                raise ValueError(value)
            return int(float(value))
        if kind in ("float", "double"):
            return float(value)
    except ValueError:
        raise UnmatchedInputError(path, f"must be a number ({kind}), not {value!r}") from None
    if kind == "boolean":
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
        raise UnmatchedInputError(path, f"must be true or false, not {value!r}")
    if kind == "string":
        return text(value)
    return value


def text(value: Any) -> str:
    """Return a scalar as AWS writes it in text: ``true``, ``30`` (not ``30.0``)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@lru_cache(maxsize=512)
def _members(shape: StructureShape) -> dict[str, str]:
    return {_plain(name): name for name in shape.members}
