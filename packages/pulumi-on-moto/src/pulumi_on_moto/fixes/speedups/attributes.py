"""Cache of moto's lookup of response fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.core import serialize
from moto.core.serialize import ResponseSerializer, XFormedAttributePicker
from moto.core.utils import get_value

from pulumi_on_moto.fixes import Patch

_ABSENT: Final = object()
_find = ResponseSerializer.get_value


def _finding() -> Callable[..., Any]:
    """Return moto's lookup of a member's value, with a cache.

    The spellings of a member depend on its shape and the object's class; the transformers depend on the key.
    Both together take most of the time of a response.
    """
    # The shapes and dictionaries are referenced to keep their ids unique.
    spellings: dict[Any, tuple[Any, tuple[str, ...], Callable[..., Any]]] = {}
    transformers: dict[Any, tuple[Any, list[tuple[str, Any]]]] = {}

    def find(serializer: Any, value: Any, key: str, shape: Any) -> Any:
        picker = serializer._value_picker
        if type(picker) is not XFormedAttributePicker:
            return _find(serializer, value, key, shape)
        spelling = spellings.get(cache_key := (id(shape), type(value), key, id(picker.alias_providers)))
        if spelling is None:
            keys = _spelled(serializer, value, key, shape)
            spelling = spellings[cache_key] = (
                (shape, picker.alias_providers),
                keys,
                _reader(type(value), keys),
            )
        _, keys, read = spelling
        value_found = None
        for spelled in keys:
            attribute = read(value, spelled, _ABSENT)
            if attribute is not _ABSENT:
                value_found = attribute
                break
        response_transformers = picker.response_transformers
        ours = transformers.get(transformer_key := (id(response_transformers), key))
        if ours is None:
            ours = transformers[transformer_key] = (
                response_transformers,
                _that_can_end_in(response_transformers, key),
            )
        for path, transform in ours[1]:
            if f"{'.'.join(serializer.path)}.{key}".endswith(path):
                return transform(value_found)
        return value_found

    return find


def _spelled(serializer: Any, value: Any, key: str, shape: Any) -> tuple[str, ...]:
    service = serializer.operation_model.service_model
    context = serialize.AttributePickerContext(value, key, shape, serializer.operation_model, service)
    return tuple(dict.fromkeys(serializer._value_picker.get_possible_keys(context)))


def _reader(kind: type, keys: tuple[str, ...]) -> Callable[..., Any]:
    """Return a function that reads a value by name from objects of a class, as ``get_value`` does."""
    if any("." in key for key in keys):
        return get_value
    if kind is dict:
        return dict.get
    return get_value if hasattr(kind, "__getitem__") else getattr


def _that_can_end_in(transformers: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    return [
        (path, transform)
        for path, transform in transformers.items()
        if path.rpartition(".")[2] == key or ("." not in path and key.endswith(path))
    ]


ATTRIBUTES: Final[Patch] = (ResponseSerializer, "get_value", _finding())
