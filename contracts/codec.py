"""The one codec: frozen dataclasses to JSON or to an item of DynamoDB, and back with every value checked.

A field is stored under its name in camelCase, or under the one that `Stored` writes down. Types are those of
JSON, dataclasses, enumerations, ``Literal``, ``tuple``, ``frozenset``, ``Mapping``, ``X | None`` and ``Any``,
each ``Annotated`` with bounds (see `contracts.limits`) and the marks below where it has some. An error
says in one line where the value stands, what it is and what is allowed.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, Final, Literal, TypeVar

from contracts.limits import Bound

T = TypeVar("T")
Reader = Callable[[Any], Any]


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


class Mark(enum.Enum):
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


_PLAIN: Final = Form()


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


def parse(kind: type[T], data: object, path: str = "") -> T:
    """Return the value of type ``kind`` that decoded JSON holds; the inverse of `dump`.

    Raises:
        ContractError: a key that is unknown or missing, a value of another type or one that is not allowed.
    """
    try:
        return typing.cast("T", _reader(kind)(data))
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
        return typing.cast("T", _table(cls, is_item=True).read(item, in_key))
    except ContractError as error:
        raise ContractError(str(error), refusal) from None


def dump_item(value: Any) -> dict[str, Any]:
    """Return a dataclass as attributes of DynamoDB's API, without the item's key; None is left out."""
    return _attributes(_dump_fields(value))


def attribute(value: Any) -> dict[str, Any]:
    """Return a value as an attribute of DynamoDB's API."""
    return _attribute(dump(value))


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a dataclass as it is stored: ``default`` is a function that makes it, None where none is."""

    name: str
    key: str
    read: Reader
    default: Callable[[], Any] | None
    is_required: bool
    is_inline: bool = False


@dataclass(frozen=True, slots=True)
class _Table:
    """The fields of a dataclass, looked up once."""

    cls: type[Any]
    form: Form
    fields: tuple[_Field, ...]
    by_key: Mapping[str, tuple[str, Reader]]
    inline: tuple[_Field, ...]
    required: frozenset[str]

    def read(self, data: object, given: Mapping[str, Any] | None = None) -> Any:
        """Return an instance from decoded JSON; ``given`` are values of fields that are not in it."""
        values = dict(given or {})
        stored = self._stored(data)
        by_key = self.by_key
        if not self.form.is_open and (unknown := sorted(stored.keys() - by_key.keys())):
            raise ContractError(f"unknown key; allowed: {', '.join(sorted(by_key))}", unknown[0])
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
            raise ContractError("missing", next(field.key for field in self.fields if field.key in missing))
        try:
            return self.cls(**values)
        except ValueError as error:
            raise ContractError(str(error)) from None

    def _stored(self, data: object) -> Mapping[str, Any]:
        if not self.form.is_list:
            if not isinstance(data, Mapping):
                raise ContractError(f"{data!r:.80} is not an object")
            return data
        if not isinstance(data, list) or len(data) != len(self.fields):
            raise ContractError(f"{data!r:.80} is not a list of {', '.join(self.by_key)}")
        return dict(zip(self.by_key, data, strict=True))

    def _position(self, key: str) -> int:
        return list(self.by_key).index(key)


_TABLES: Final[dict[tuple[type[Any], bool], _Table]] = {}


def _table(cls: type[Any], *, is_item: bool = False) -> _Table:
    """Return a class's table; ``is_item``: its readers take attributes of DynamoDB's API."""
    found = _TABLES.get((cls, is_item))
    if found is None:
        found = _TABLES[cls, is_item] = _compiled(cls, is_item=is_item)
    return found


def _compiled(cls: type[Any], *, is_item: bool) -> _Table:
    form = getattr(cls, "__stored_as__", _PLAIN)
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for field in dataclasses.fields(cls):
        marks = _marks(hints[field.name])
        if Mark.IN_KEY in marks:
            continue
        own = field.name if form.keys == "as named" else camel_case(field.name)
        key = next((mark.name for mark in marks if isinstance(mark, Stored)), own)
        default = _default(field)
        hint = hints[field.name]
        read = _attribute_reader(hint) if is_item else _reader(hint, is_listed=form.is_list)
        if Mark.OR_DEFAULT in marks and default is not None:
            read = _or_default(read, default)
        is_required = default is None or Mark.REQUIRED in marks
        found.append(_Field(field.name, key, read, default, is_required, Mark.INLINE in marks))
    named = {field.key: (field.name, field.read) for field in found if not field.is_inline}
    inline = tuple(field for field in found if field.is_inline)
    required = frozenset(field.key for field in found if field.is_required and not field.is_inline)
    return _Table(cls, form, tuple(found), named, inline, required)


def _marks(hint: Any) -> tuple[Any, ...]:
    return hint.__metadata__ if typing.get_origin(hint) is typing.Annotated else ()


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if field.default_factory is not MISSING:
        return field.default_factory
    return None if field.default is MISSING else lambda: field.default


def _or_default(read: Reader, default: Callable[[], Any]) -> Reader:
    def tolerant(value: Any) -> Any:
        try:
            return read(value)
        except ContractError:
            return default()

    return tolerant


def camel_case(name: str) -> str:
    """Return a field's name as it is stored where nothing else is said."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _dump_fields(value: Any) -> Any:
    table = _table(type(value))
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


def _reader(hint: Any, *, is_listed: bool = False) -> Reader:
    """Return the function that reads a value of a type; ``is_listed``: it stands in a list without names."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _bounded(_reader(arguments[0], is_listed=is_listed), arguments[1:])
    if origin in (types.UnionType, typing.Union):  # only `X | None` occurs
        [kind] = [one for one in arguments if one is not types.NoneType]
        inner = _reader(kind)
        return lambda value: None if value is None else inner(value)
    if origin is typing.Literal:
        return _one_of({one: one for one in arguments}, repr)
    if origin is tuple:
        return _list(_reader(arguments[0])) if arguments[1:] == (...,) else _fixed(arguments)
    if origin is frozenset:
        members = _list(_reader(arguments[0]))
        return lambda value: frozenset(members(value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_key_reader(arguments[0]), _reader(arguments[1]))
    if hint is Any:
        return lambda value: value
    if dataclasses.is_dataclass(hint):
        return _nested(typing.cast("type[Any]", hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _one_of({one.value: one for one in hint}, str)
    if hint is float:
        return _read_float
    return _read_flag if hint is bool and is_listed else _exact(hint)


def _nested(cls: type[Any]) -> Reader:
    # Looked up when it is needed: a class may hold others of its own kind.
    return lambda value: _table(cls).read(value)


def _exact(kind: type[Any]) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:  # exact: JSON's true is no number
            raise ContractError(f"{value!r:.80} is not of type {kind.__name__}")
        return value

    return read


def _read_float(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is float:
        raise ContractError(f"{value!r}; allowed: finite numbers")
    if type(value) is not int:
        raise ContractError(f"{value!r:.80} is not of type float")
    try:
        return float(value)
    except OverflowError:
        raise ContractError(f"{value!r:.80} is too large for a float") from None


def _read_flag(value: Any) -> bool:
    if value not in (0, 1):
        raise ContractError(f"{value!r:.80}; allowed: 0, 1")
    return bool(value)


def _one_of(allowed: Mapping[Any, Any], shown: Callable[[Any], str]) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, str | int) or value not in allowed:
            raise ContractError(f"{value!r:.80}; allowed: {', '.join(map(shown, allowed))}")
        return allowed[value]

    return read


def _bounded(read: Reader, marks: tuple[Any, ...]) -> Reader:
    bounds = [mark for mark in marks if isinstance(mark, Bound)]
    least = next((mark.least for mark in marks if isinstance(mark, RaisedTo)), None)
    if least is not None:
        return lambda value: max(least, read(value))
    if not bounds:
        return read

    def checked(value: Any) -> Any:
        found = read(value)
        for bound in bounds:
            if not bound.allows(found):
                raise ContractError(f"{value!r:.80}; allowed: {bound}")
        return found

    return checked


def _list(member: Reader) -> Reader:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ContractError(f"{value!r:.80} is not a list")
        found = []
        try:
            for each in value:
                found.append(member(each))
        except ContractError as error:
            raise error.below(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _fixed(kinds: tuple[Any, ...]) -> Reader:
    readers = tuple(_reader(kind, is_listed=True) for kind in kinds)

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(readers):
            raise ContractError(f"{value!r:.80} is not a list of {len(readers)}")
        return tuple(member(each) for member, each in zip(readers, value, strict=True))

    return read


def _mapping(read_key: Reader, read_value: Reader) -> Reader:
    def read(value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise ContractError(f"{value!r:.80} is not an object")
        found, key = {}, ""
        try:
            for key, each in value.items():
                found[read_key(key)] = read_value(each)
        except ContractError as error:
            raise error.below(key) from None
        return found

    return read


def _key_reader(hint: Any) -> Reader:
    """Return the function that reads a key of a JSON object, which is a text whatever it means."""
    if hint is not int:
        return _reader(hint)

    def read(value: str) -> int:
        if not value.isdecimal() or len(value) > 15:
            raise ContractError(f"{value!r:.80} is not a whole number")
        return int(value)

    return read


def _attribute_reader(hint: Any) -> Reader:
    """Return the function that reads an attribute of DynamoDB's API; None is never stored."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _bounded(_attribute_reader(arguments[0]), arguments[1:])
    if origin in (types.UnionType, typing.Union):
        return _attribute_reader(next(one for one in arguments if one is not types.NoneType))
    if dataclasses.is_dataclass(hint):
        cls = typing.cast("type[Any]", hint)
        return lambda attribute: _table(cls, is_item=True).read(_unwrapped(attribute, "M"))
    if hint in _ATTRIBUTES:
        return _ATTRIBUTES[hint]
    read = _reader(hint)
    return lambda attribute: read(_value(attribute))


def _text_attribute(attribute: Any) -> str:
    return str(_unwrapped(attribute, "S"))


def _int_attribute(attribute: Any) -> int:
    try:
        return int(attribute["N"])
    except (KeyError, TypeError, ValueError):
        raise ContractError(f"{attribute!r:.80} is not of type int") from None


def _float_attribute(attribute: Any) -> float:
    try:
        value = float(attribute["N"])
    except (KeyError, TypeError, ValueError):
        raise ContractError(f"{attribute!r:.80} is not of type float") from None
    return value if math.isfinite(value) else _read_float(value)


_ATTRIBUTES: Final[dict[Any, Reader]] = {str: _text_attribute, int: _int_attribute, float: _float_attribute}


def _unwrapped(attribute: Any, kind: str) -> Any:
    try:
        return attribute[kind]
    except (KeyError, TypeError):
        raise ContractError(f"{attribute!r:.80} is not an attribute of kind {kind}") from None


def _value(attribute: Any) -> Any:
    """Return an attribute's value as JSON has it; what is no attribute comes back as it is."""
    if not isinstance(attribute, Mapping) or len(attribute) != 1:
        return attribute
    [(kind, value)] = attribute.items()
    if kind == "N":
        return _number(value)
    if kind == "M" and isinstance(value, Mapping):
        return {name: _value(each) for name, each in value.items()}
    if kind == "L" and isinstance(value, list):
        return [_value(each) for each in value]
    return None if kind == "NULL" else value


def _number(text: Any) -> Any:
    try:
        return int(text) if text.removeprefix("-").isdecimal() else float(text)
    except (AttributeError, TypeError, ValueError):
        return text


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
