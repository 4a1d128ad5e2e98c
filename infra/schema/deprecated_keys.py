"""Deprecated keys of a stack file: they are accepted under their old names until the next major version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from infra.schema.base import Model
from infra.schema.model_tree import CHOICE_KEY, chosen_model, element_type, is_model, key_types

Location: TypeAlias = tuple[int | str, ...]
"""Keys and list indices that lead to a value, by the current names of the keys."""


@dataclass(frozen=True)
class DeprecatedKey:
    """A key that was given under its deprecated name ``old``; ``location`` ends with its current name."""

    location: Location
    old: str

    @property
    def new(self) -> str:
        """The current name of the key."""
        return str(self.location[-1])


def rename_deprecated_keys(
    model: type[Model], raw: Mapping[str, Any]
) -> tuple[dict[str, Any], list[DeprecatedKey]]:
    """Return the raw settings of ``model`` under the current names of their keys, and the keys renamed.

    A key that is given under both names is left as it is: the model then rejects the old one.
    """
    renamed: list[DeprecatedKey] = []
    settings = _rename_in_model(model, raw, (), renamed)
    return settings, renamed


def _rename(annotation: Any, value: Any, location: Location, renamed: list[DeprecatedKey]) -> Any:
    if isinstance(value, list | tuple):
        element = element_type(annotation)
        return [_rename(element, item, (*location, index), renamed) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        model = annotation if is_model(annotation) else chosen_model(annotation, value.get(CHOICE_KEY))
        if model is not None:
            return _rename_in_model(model, value, location, renamed)
    return value


def _rename_in_model(
    model: type[Model], raw: Mapping[str, Any], location: Location, renamed: list[DeprecatedKey]
) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    annotations = key_types(model)
    for written, value in raw.items():
        key = model.deprecated_keys.get(written, written)
        if key != written and key in raw:
            key = written
        elif key != written:
            renamed.append(DeprecatedKey((*location, key), written))
        settings[key] = _rename(annotations.get(key), value, (*location, key), renamed)
    return settings
