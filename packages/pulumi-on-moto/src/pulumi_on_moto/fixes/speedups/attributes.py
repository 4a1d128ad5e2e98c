"""Names under which moto's serializer looks for a member's value, found once for each kind of object.

moto asks six providers of aliases for each member of each object that it renders, a quarter of a rehearsal's
time. Their answers depend on the member's shape, which belongs to one structure, and on the object's class.
That is also true of the endings of paths whose values a service transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from moto.core.constants import MISSING
from moto.core.serialize import AttributePicker, AttributePickerContext, ResponseSerializer
from moto.core.utils import get_value

from pulumi_on_moto.fixes import Patches, around

_Lookups: TypeAlias = dict[tuple[Any, ...], tuple[tuple[str, ...], tuple[str, ...]]]
"""By class, shape and key: names to look for in order, and endings that the member's path may have."""
_lookups: Final[dict[tuple[Any, ...], _Lookups]] = {}


def _lookups_of(picker: AttributePicker) -> _Lookups:
    attributes = vars(picker)  # each response has its picker
    if "lookups" not in attributes:
        by = picker.__class__, *picker.alias_providers, *picker.response_transformers
        attributes["lookups"] = _lookups.setdefault(by, {})
    lookups: _Lookups = attributes["lookups"]
    return lookups


def _first(names: Sequence[str], obj: Any) -> Any:
    """Return the value of the first name that the object has; None without one."""
    is_indexed = hasattr(obj, "__getitem__")
    for name in names:
        value = get_value(obj, name, MISSING) if is_indexed or "." in name else getattr(obj, name, MISSING)
        if value is not MISSING:
            return value
    return None


def _picked(picker: AttributePicker, context: AttributePickerContext) -> Any:
    """Return what ``AttributePicker`` finds, in the order of its names."""
    lookups, kind = _lookups_of(picker), (context.obj.__class__, context.shape, context.key)
    if kind not in lookups:
        at, names = f".{context.key}", tuple(dict.fromkeys(picker.get_possible_keys(context)))
        possible = (
            ending for ending in picker.response_transformers if ending.endswith(at) or at.endswith(ending)
        )
        lookups[kind] = names, tuple(possible)
    names, endings = lookups[kind]
    value = _first(names, context.obj)
    for ending in endings:
        if f"{context.key_path}.{context.key}".endswith(ending):
            return picker.response_transformers[ending](value)
    return value


def _value(get: Callable[..., Any], serializer: Any, value: Any, key: str, shape: Any) -> Any:
    """Return the value of a member; its place is described only where that matters."""
    if isinstance(picker := serializer._value_picker, AttributePicker):
        names, endings = _lookups_of(picker).get((value.__class__, shape, key), ((), ("",)))
        if not endings:
            return _first(names, value)
    return get(serializer, value, key, shape)


ATTRIBUTES: Final[Patches] = (
    (AttributePicker, "__call__", _picked),
    around(ResponseSerializer, "get_value", _value),
)
