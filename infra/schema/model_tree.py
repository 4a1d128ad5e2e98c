"""The tree of settings models by their keys: types of keys, elements of lists, models chosen by ``kind``."""

from __future__ import annotations

import types
from typing import Annotated, Any, Final, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel

from infra.schema.base import Model

CHOICE_KEY: Final = "kind"
"""The key by which one of several models is chosen."""


def is_model(annotation: Any) -> TypeGuard[type[Model]]:
    """Return whether an annotation is a settings model."""
    return isinstance(annotation, type) and issubclass(annotation, Model)


def key_types(model: type[BaseModel]) -> dict[str, Any]:
    """Return the type of each key of a model, without ``Annotated`` and ``None``."""
    return {field.alias or name: _strip(field.annotation) for name, field in model.model_fields.items()}


def element_type(annotation: Any) -> Any:
    """Return the type of a list's elements; None if there is none."""
    arguments = get_args(annotation)
    return _strip(arguments[0]) if arguments else None


def chosen_model(annotation: Any, tag: object) -> type[Model] | None:
    """Return the model of a choice whose ``kind`` is ``tag``; None if there is none."""
    models = [member for member in get_args(annotation) if is_model(member)]
    return next((model for model in models if tag in get_args(key_types(model).get(CHOICE_KEY))), None)


def _strip(annotation: Any) -> Any:
    """Return an annotation without ``Annotated`` and ``| None``."""
    if get_origin(annotation) is Annotated:
        return _strip(get_args(annotation)[0])
    if get_origin(annotation) in (types.UnionType, Union):
        members = [member for member in get_args(annotation) if member is not types.NoneType]
        return _strip(members[0]) if len(members) == 1 else annotation
    return annotation
