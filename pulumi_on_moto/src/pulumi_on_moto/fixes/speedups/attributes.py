"""How moto finds the values of an answer's fields, with what it works out anew each time remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.core import serialize
from moto.core.utils import get_value

from pulumi_on_moto.fixes.fix import Patch


def _picking() -> Callable[..., Any]:
    """Return moto's search for an attribute's value, with what it works out anew each time remembered.

    The spellings of an attribute depend on the service, the object's class, the key and the shape; whether
    one of the transformers applies depends on the key. Both together are most of the time of an answer.
    """
    spellings: dict[Any, tuple[str, ...]] = {}
    absent = object()
    transformers: dict[Any, list[tuple[str, Any]]] = {}

    def pick(picker: Any, context: Any) -> Any:
        shape = context.shape
        place = (
            context.service_model.service_name if context.service_model is not None else None,
            type(context.obj),
            context.key,
            shape.name if shape is not None else None,
            shape.serialization.get("name") if shape is not None else None,
            getattr(getattr(shape, "parent", None), "name", None),
            type(picker),
            tuple(picker.alias_providers),
        )
        keys = spellings.get(place)
        if keys is None:
            keys = spellings[place] = tuple(dict.fromkeys(picker.get_possible_keys(context)))
        value = None
        for key in keys:
            found = get_value(context.obj, key, absent)
            if found is not absent:
                value = found
                break
        # The dictionary itself is kept with its transformers, so that its id stays its own.
        known = transformers.setdefault((id(picker.response_transformers), context.key), [])
        if not known:
            known.append(("", picker.response_transformers))
            known.extend(_that_can_end_in(picker.response_transformers, context.key))
        for path, transform in known[1:]:
            if f"{context.key_path}.{context.key}".endswith(path):
                return transform(value)
        return value

    return pick


def _that_can_end_in(transformers: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    return [
        (path, transform)
        for path, transform in transformers.items()
        if path.rpartition(".")[2] == key or ("." not in path and key.endswith(path))
    ]


ATTRIBUTES: Final[Patch] = (serialize.AttributePicker, "__call__", _picking())
