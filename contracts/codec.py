"""The one codec: frozen dataclasses to JSON or to an item of DynamoDB, and back with every value checked.

A field is stored under its name in camelCase, or under the one that `Stored` writes down. Types are those of
JSON, dataclasses, enumerations, ``Literal``, ``tuple``, ``frozenset``, ``Mapping``, ``X | None`` and ``Any``,
each ``Annotated`` with bounds (see `contracts.limits`) and marks (see `contracts.stored`) where it has some.
An error says in one line where the value stands, what it is and what is allowed.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import typing
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from contracts.stored import ContractError
from contracts.stored_fields import fields_of, reader

T = TypeVar("T")

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def parse(kind: type[T], data: object, path: str = "") -> T:
    """Return the value of type ``kind`` that decoded JSON holds; the inverse of `dump`.

    Raises:
        ContractError: a key that is unknown or missing, a value of another type or one that is not allowed.
    """
    try:
        return typing.cast("T", reader(kind)(data))
    except ContractError as error:
        raise error.below(path) from None


def dump(value: Any) -> Any:
    """Return what `parse` reads as ``value``, ready for JSON."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if dataclasses.is_dataclass(kind):
        return _dump_fields(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {_key_text(key): dump(each) for key, each in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(dump, value))
    return [dump(each) for each in value] if isinstance(value, tuple | list) else value


def parse_text(kind: type[T], text: str, refusal: str = "") -> T:
    """Return the value of type ``kind`` that a JSON text holds.

    Raises:
        ContractError: as `parse` does, and for what is no JSON; its line begins with ``refusal``.
    """
    try:
        return parse(kind, decode(text))
    except ContractError as error:
        raise ContractError(str(error), refusal) from None


def parse_versioned(cls: type[T], text: str, version: int) -> T:
    """Return the dataclass that was stored as a memory of the format ``version``; raise `ContractError`."""
    refusal = "memory makes no sense"
    try:
        raw = decode(text)
        found = raw.get("format") if isinstance(raw, dict) else raw
        if found != version:
            refusal = ""
            raise ContractError(f"memory has format {found!r:.80}, {version} is needed")
        return parse(cls, raw)
    except ContractError as error:
        raise ContractError(str(error), refusal) from None


def decode(text: str) -> Any:
    """Return what a JSON text holds; raise `ContractError` for one that Python's parser refuses.

    That includes numbers of thousands of digits and deep nesting.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not JSON: {error}") from None


def decode_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a text holds; raise `ContractError` for all else."""
    raw = decode(text)
    if not isinstance(raw, dict):
        raise ContractError(f"{text[:80]!r} is not an object")
    return raw


def parse_item(cls: type[T], item: Mapping[str, Any], refusal: str = "", **in_key: Any) -> T:
    """Return the dataclass that an item of DynamoDB's API holds; ``in_key`` are fields that its key says.

    Raises:
        ContractError: as `parse` does; its line begins with ``refusal``.
    """
    try:
        return typing.cast("T", fields_of(cls, is_item=True).read(item, in_key))
    except ContractError as error:
        raise ContractError(str(error), refusal) from None


def dump_item(value: Any) -> dict[str, Any]:
    """Return a dataclass as attributes of DynamoDB's API, without the item's key; None is left out."""
    return _attributes(_dump_fields(value))


def attribute(value: Any) -> dict[str, Any]:
    """Return a value as an attribute of DynamoDB's API."""
    return _attribute(dump(value))


def _dump_fields(value: Any) -> Any:
    table = fields_of(type(value))
    if table.form.is_list:
        each = (dump(getattr(value, field.name)) for field in table.fields)
        return [int(one) if type(one) is bool else one for one in each]
    found: dict[str, Any] = {}
    if table.form.is_empty_at_default and value == type(value)():
        return found
    for field in table.fields:
        each = getattr(value, field.name)
        if field.is_inline:
            found |= _dump_fields(each)
        elif table.form.has_defaults or field.default is None or each != field.default():
            found[field.key] = dump(each)
    return found


def _key_text(key: Any) -> str:
    return str(key.value if isinstance(key, enum.Enum) else key)


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _attribute(each) for name, each in values.items() if each is not None}


def _attribute(value: Any) -> dict[str, Any]:
    kind = type(value)
    if kind is str:
        return {"S": value}
    if kind is float:
        return {"N": str(int(value)) if value.is_integer() else repr(value)}
    if kind is int:
        return {"N": str(value)}
    if kind is bool:
        return {"BOOL": value}
    if kind is dict:
        return {"M": _attributes(value)}
    return {"L": [_attribute(each) for each in value]} if kind is list else {"NULL": True}
