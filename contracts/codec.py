"""Codec of frozen dataclasses: to and from JSON and DynamoDB items, with every value checked.

The stored key of a field is its name in camelCase, or the name given by `Stored`. Supported types: those of
JSON, dataclasses, enumerations, ``Literal``, ``tuple``, ``frozenset``, ``Mapping``, ``X | None`` and ``Any``,
optionally ``Annotated`` with bounds (`contracts.limits`) and marks (`contracts.stored`).
An error is one line: the path of the value, the value and what is allowed.
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
    """Convert decoded JSON to a value of type ``kind``; the inverse of `dump`.

    Raises:
        ContractError: A key is unknown or missing, or a value has the wrong type or is not allowed.
    """
    try:
        return typing.cast("T", reader(kind)(data))
    except ContractError as error:
        raise error.below(path) from None


def dump(value: Any) -> Any:
    """Convert ``value`` to JSON types; the inverse of `parse`."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if dataclasses.is_dataclass(kind):
        return _dump_fields(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {_key_text(key): dump(member) for key, member in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(dump, value))
    return [dump(member) for member in value] if isinstance(value, tuple | list) else value


def parse_text(kind: type[T], text: str, error_prefix: str = "") -> T:
    """Convert a JSON text to a value of type ``kind``.

    Raises:
        ContractError: As for `parse`, or the text is not JSON; the message begins with ``error_prefix``.
    """
    try:
        return parse(kind, decode(text))
    except ContractError as error:
        raise error.about(error_prefix) from None


def parse_versioned(cls: type[T], text: str, version: int) -> T:
    """Parse state that a function stored with the key ``format`` equal to ``version``.

    Raises:
        ContractError: The text is not valid for ``cls``, or has another format.
    """
    error_prefix = "stored state"
    try:
        raw = decode(text)
        stored_format = raw.get("format") if isinstance(raw, dict) else raw
        if stored_format != version:
            error_prefix = ""
            raise ContractError(f"stored state must have format {version}, not {stored_format!r:.80}")
        return parse(cls, raw)
    except ContractError as error:
        raise error.about(error_prefix) from None


def decode(text: str) -> Any:
    """Decode a JSON text.

    Raises:
        ContractError: Python's parser rejects the text, also for too many digits or too deep nesting.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"is not JSON: {error}") from None


def decode_object(text: str) -> dict[str, Any]:
    """Decode a JSON text that must be an object; raise `ContractError` otherwise."""
    raw = decode(text)
    if not isinstance(raw, dict):
        raise ContractError(f"must be an object, not {text[:80]!r}")
    return raw


def parse_item(cls: type[T], item: Mapping[str, Any], error_prefix: str = "", **in_key: Any) -> T:
    """Convert a DynamoDB item to a dataclass; ``in_key`` are the fields that the item's key holds.

    Raises:
        ContractError: As for `parse`; the message begins with ``error_prefix``.
    """
    try:
        return typing.cast("T", fields_of(cls, is_item=True).read(item, in_key))
    except ContractError as error:
        raise error.about(error_prefix) from None


def dump_item(value: Any) -> dict[str, Any]:
    """Convert a dataclass to DynamoDB attributes, without the item's key; ``None`` is omitted."""
    return _attributes(_dump_fields(value))


def attribute(value: Any) -> dict[str, Any]:
    """Convert a value to a DynamoDB attribute value."""
    return _attribute(dump(value))


def _dump_fields(value: Any) -> Any:
    table = fields_of(type(value))
    if table.form.is_list:
        members = (dump(getattr(value, field.name)) for field in table.fields)
        return [int(member) if type(member) is bool else member for member in members]
    result: dict[str, Any] = {}
    if table.form.is_empty_at_default and value == type(value)():
        return result
    for field in table.fields:
        field_value = getattr(value, field.name)
        if field.is_inline:
            result |= _dump_fields(field_value)
        elif not field.is_sparse or field.default is None or field_value != field.default():
            result[field.key] = dump(field_value)
    return result


def _key_text(key: Any) -> str:
    return str(key.value if isinstance(key, enum.Enum) else key)


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _attribute(value) for name, value in values.items() if value is not None}


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
    return {"L": [_attribute(member) for member in value]} if kind is list else {"NULL": True}
