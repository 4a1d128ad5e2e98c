"""Names under which moto's serializer looks for a member's value, found once for each kind of object.

moto asks six providers of aliases for each member of each object that it renders, a quarter of a rehearsal's
time. Their answers depend on the service, on the member and its structure, and on the object's class.
"""

from __future__ import annotations

from typing import Any, Final

from moto.core.constants import MISSING
from moto.core.serialize import AttributePicker, AttributePickerContext
from moto.core.utils import get_value

from pulumi_on_moto.fixes import Patch

_keys: dict[tuple[Any, ...], tuple[str, ...]] = {}


def _keys_of(picker: AttributePicker, context: AttributePickerContext) -> tuple[str, ...]:
    service = context.service_model.service_name if context.service_model else None
    of = [getattr(shape, "name", None) for shape in (context.shape, getattr(context.shape, "parent", None))]
    identity = (type(picker), *picker.alias_providers, type(context.obj), context.key, service, *of)
    if identity not in _keys:
        _keys[identity] = tuple(dict.fromkeys(picker.get_possible_keys(context)))
    return _keys[identity]


def _picked(picker: AttributePicker, context: AttributePickerContext) -> Any:
    """Return what ``AttributePicker`` finds, in the order of its names."""
    obj, value = context.obj, None
    is_indexed = hasattr(obj, "__getitem__")
    for key in _keys_of(picker, context):
        candidate = get_value(obj, key, MISSING) if is_indexed or "." in key else getattr(obj, key, MISSING)
        if candidate is not MISSING:
            value = candidate
            break
    path = f"{context.key_path}.{context.key}"
    for ending, transform in picker.response_transformers.items():
        if path.endswith(ending):
            return transform(value)
    return value


ATTRIBUTES: Final[Patch] = (AttributePicker, "__call__", _picked)
