"""Readers of stored dataclasses: a table of fields for each class, a reader function for each type."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, Final, TypeAlias

from contracts.limits import Bound
from contracts.sentences import alternatives
from contracts.stored import STRICT, ContractError, FieldMark, Form, RaisedTo, Stored, camel_case

FieldReader: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class StoredField:
    """A stored field; ``default`` is the factory of its default, ``None`` without a default."""

    name: str
    key: str
    read: FieldReader
    default: Callable[[], Any] | None
    is_required: bool
    is_inline: bool = False
    is_sparse: bool = False


@dataclass(frozen=True, slots=True)
class StoredFields:
    """The stored fields of a dataclass, compiled once."""

    cls: type[Any]
    form: Form
    fields: tuple[StoredField, ...]
    by_key: Mapping[str, tuple[str, FieldReader]]
    inline: tuple[StoredField, ...]
    required: frozenset[str]

    def read(self, data: object, in_key: Mapping[str, Any] | None = None) -> Any:
        """Build an instance from decoded JSON; ``in_key`` are the values that the item's key holds."""
        values = dict(in_key or {})
        stored = self._by_key(data)
        by_key = self.by_key
        if not self.form.is_open and (unknown := sorted(stored.keys() - by_key.keys())):
            raise ContractError(
                f"is not a known key; the known keys are: {', '.join(sorted(by_key))}", unknown[0]
            )
        key = ""
        try:
            for key, value in stored.items():
                if key in by_key:
                    name, read = by_key[key]
                    values[name] = read(value)
        except ContractError as error:
            raise error.below(f"[{self._position(key)}]" if self.form.is_list else key) from None
        for field in self.inline:
            values[field.name] = field.read(stored)
        if missing := self.required.difference(stored):
            raise ContractError(
                "is missing", next(field.key for field in self.fields if field.key in missing)
            )
        try:
            return self.cls(**values)
        except ValueError as error:
            raise ContractError(str(error)) from None

    def _by_key(self, data: object) -> Mapping[str, Any]:
        if not self.form.is_list:
            if not isinstance(data, Mapping):
                raise ContractError(f"must be an object, not {data!r:.80}")
            return data
        if not isinstance(data, list) or len(data) < len(self.required):
            raise ContractError(f"must be a list of {', '.join(self.by_key)}, not {data!r:.80}")
        # Of another version: a shorter list lacks what has a default, a longer one has more than is read.
        return dict(zip(self.by_key, data, strict=False))

    def _position(self, key: str) -> int:
        return list(self.by_key).index(key)


_TABLES: Final[dict[tuple[type[Any], bool], StoredFields]] = {}


def fields_of(cls: type[Any], *, is_item: bool = False) -> StoredFields:
    """Return the fields of a class; with ``is_item``, readers expect DynamoDB attribute values."""
    table = _TABLES.get((cls, is_item))
    if table is None:
        table = _TABLES[cls, is_item] = _compile(cls, is_item=is_item)
    return table


def _compile(cls: type[Any], *, is_item: bool) -> StoredFields:
    form = getattr(cls, "__stored_as__", STRICT)
    hints = typing.get_type_hints(cls, include_extras=True)
    stored_fields = []
    for field in dataclasses.fields(cls):
        marks = _marks(hints[field.name])
        if FieldMark.IN_KEY in marks:
            continue
        default_key = field.name if form.keys == "as named" else camel_case(field.name)
        key = next((mark.name for mark in marks if isinstance(mark, Stored)), default_key)
        default = _default(field)
        hint = hints[field.name]
        read = _attribute_reader(hint) if is_item else reader(hint, is_listed=form.is_list)
        if FieldMark.OR_DEFAULT in marks and default is not None:
            read = _or_default(read, default)
        is_required = default is None or FieldMark.REQUIRED in marks
        is_inline = FieldMark.INLINE in marks
        is_sparse = default is not None and (FieldMark.SPARSE in marks or not form.has_defaults)
        stored_fields.append(StoredField(field.name, key, read, default, is_required, is_inline, is_sparse))
    by_key = {field.key: (field.name, field.read) for field in stored_fields if not field.is_inline}
    inline = tuple(field for field in stored_fields if field.is_inline)
    required = frozenset(field.key for field in stored_fields if field.is_required and not field.is_inline)
    return StoredFields(cls, form, tuple(stored_fields), by_key, inline, required)


def _marks(hint: Any) -> tuple[Any, ...]:
    return hint.__metadata__ if typing.get_origin(hint) is typing.Annotated else ()


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if field.default_factory is not MISSING:
        return field.default_factory
    return None if field.default is MISSING else lambda: field.default


def _or_default(read: FieldReader, default: Callable[[], Any]) -> FieldReader:
    def tolerant(value: Any) -> Any:
        try:
            return read(value)
        except ContractError:
            return default()

    return tolerant


def reader(hint: Any, *, is_listed: bool = False) -> FieldReader:
    """Return the reader of a type; ``is_listed``: the value is an element of a list without keys."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _bounded(reader(arguments[0], is_listed=is_listed), arguments[1:])
    if origin in (types.UnionType, typing.Union):  # only `X | None` occurs
        [kind] = [argument for argument in arguments if argument is not types.NoneType]
        inner = reader(kind)
        return lambda value: None if value is None else inner(value)
    if origin is typing.Literal:
        return _one_of({value: value for value in arguments}, repr)
    if origin is tuple:
        return _list(reader(arguments[0])) if arguments[1:] == (...,) else _fixed(arguments)
    if origin is frozenset:
        members = _list(reader(arguments[0]))
        return lambda value: frozenset(members(value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_key_reader(arguments[0]), reader(arguments[1]))
    if hint is Any:
        return lambda value: value
    if dataclasses.is_dataclass(hint):
        return _nested(typing.cast("type[Any]", hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _one_of({member.value: member for member in hint}, str)
    if hint is float:
        return _read_float
    return _read_flag if hint is bool and is_listed else _exact(hint)


def _nested(cls: type[Any]) -> FieldReader:
    # Looked up on use: a class may contain itself.
    return lambda value: fields_of(cls).read(value)


def _exact(kind: type[Any]) -> FieldReader:
    def read(value: Any) -> Any:
        if type(value) is not kind:  # exact: JSON's true is not a number
            raise ContractError(f"must be of type {kind.__name__}, not {value!r:.80}")
        return value

    return read


def _read_float(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is float:
        raise ContractError(f"must be a finite number, not {value!r}")
    if type(value) is not int:
        raise ContractError(f"must be of type float, not {value!r:.80}")
    try:
        return float(value)
    except OverflowError:
        raise ContractError(f"must fit into a float, unlike {value!r:.80}") from None


def _read_flag(value: Any) -> bool:
    if value not in (0, 1):
        raise ContractError(f"must be 0 or 1, not {value!r:.80}")
    return bool(value)


def _one_of(allowed: Mapping[Any, Any], shown: Callable[[Any], str]) -> FieldReader:
    def read(value: Any) -> Any:
        if not isinstance(value, str | int) or value not in allowed:
            raise ContractError(f"must be {alternatives(map(shown, allowed))}, not {value!r:.80}")
        return allowed[value]

    return read


def _bounded(read: FieldReader, marks: tuple[Any, ...]) -> FieldReader:
    bounds = [mark for mark in marks if isinstance(mark, Bound)]
    minimum = next((mark.minimum for mark in marks if isinstance(mark, RaisedTo)), None)
    if minimum is not None:
        return lambda value: max(minimum, read(value))
    if not bounds:
        return read

    def checked(value: Any) -> Any:
        result = read(value)
        for bound in bounds:
            if not bound.allows(result):
                raise ContractError(f"must be {bound}, not {value!r:.80}")
        return result

    return checked


def _list(member: FieldReader) -> FieldReader:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ContractError(f"must be a list, not {value!r:.80}")
        members = []
        try:
            for stored in value:
                members.append(member(stored))
        except ContractError as error:
            raise error.below(f"[{len(members)}]") from None
        return tuple(members)

    return read


def _fixed(kinds: tuple[Any, ...]) -> FieldReader:
    readers = tuple(reader(kind, is_listed=True) for kind in kinds)

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(readers):
            raise ContractError(f"must be a list of {len(readers)}, not {value!r:.80}")
        return tuple(read_member(stored) for read_member, stored in zip(readers, value, strict=True))

    return read


def _mapping(read_key: FieldReader, read_value: FieldReader) -> FieldReader:
    def read(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise ContractError(f"must be an object, not {value!r:.80}")
        result, key = {}, ""
        try:
            for key, stored in value.items():
                result[read_key(key)] = read_value(stored)
        except ContractError as error:
            raise error.below(key) from None
        return result

    return read


def _key_reader(hint: Any) -> FieldReader:
    """Return the reader of the keys of a JSON object, which are always strings."""
    if hint is not int:
        return reader(hint)

    def read(value: str) -> int:
        if not value.isdecimal() or len(value) > 15:
            raise ContractError(f"must be a whole number, not {value!r:.80}")
        return int(value)

    return read


def _attribute_reader(hint: Any) -> FieldReader:
    """Return the reader of a DynamoDB attribute value; ``None`` is never stored."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _bounded(_attribute_reader(arguments[0]), arguments[1:])
    if origin in (types.UnionType, typing.Union):
        return _attribute_reader(next(argument for argument in arguments if argument is not types.NoneType))
    if dataclasses.is_dataclass(hint):
        cls = typing.cast("type[Any]", hint)
        return lambda attribute: fields_of(cls, is_item=True).read(_unwrapped(attribute, "M"))
    if hint in _ATTRIBUTES:
        return _ATTRIBUTES[hint]
    read = reader(hint)
    return lambda attribute: read(_value(attribute))


def _text_attribute(attribute: Any) -> str:
    return str(_unwrapped(attribute, "S"))


def _int_attribute(attribute: Any) -> int:
    try:
        return int(attribute["N"])
    except (KeyError, TypeError, ValueError):
        raise ContractError(f"must be of type int, not {attribute!r:.80}") from None


def _float_attribute(attribute: Any) -> float:
    try:
        value = float(attribute["N"])
    except (KeyError, TypeError, ValueError):
        raise ContractError(f"must be of type float, not {attribute!r:.80}") from None
    return value if math.isfinite(value) else _read_float(value)


_ATTRIBUTES: Final[dict[Any, FieldReader]] = {
    str: _text_attribute,
    int: _int_attribute,
    float: _float_attribute,
}


def _unwrapped(attribute: Any, kind: str) -> Any:
    try:
        return attribute[kind]
    except (KeyError, TypeError):
        raise ContractError(f"must be an attribute of kind {kind}, not {attribute!r:.80}") from None


def _value(attribute: Any) -> Any:
    """Convert a DynamoDB attribute value to JSON types; other values are returned unchanged."""
    if not isinstance(attribute, Mapping) or len(attribute) != 1:
        return attribute
    [(kind, value)] = attribute.items()
    if kind == "N":
        return _number(value)
    if kind == "M" and isinstance(value, Mapping):
        return {name: _value(member) for name, member in value.items()}
    if kind == "L" and isinstance(value, list):
        return [_value(member) for member in value]
    return None if kind == "NULL" else value


def _number(text: Any) -> Any:
    try:
        return int(text) if text.removeprefix("-").isdecimal() else float(text)
    except (AttributeError, TypeError, ValueError):
        return text
