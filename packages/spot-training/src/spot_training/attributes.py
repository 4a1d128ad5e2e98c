"""Attributes of objects that a training changes, and that are in no ``state_dict``."""

from __future__ import annotations

from typing import Any, Final

_PLAIN: Final = (bool, int, float, str, type(None))


def is_plain(value: Any, *types: type) -> bool:
    """Return whether a value is a number, a text, one of ``types``, or a list or mapping of such."""
    if type(value) in (list, tuple):
        return all(is_plain(inner, *types) for inner in value)
    if type(value) is dict:
        return all(type(key) in _PLAIN and is_plain(inner, *types) for key, inner in value.items())
    return type(value) in (*_PLAIN, *types)


def plain(owner: Any, *types: type, is_private: bool = False) -> dict[str, Any]:
    """Return an object's public, or private, attributes that are plain."""
    items = list(getattr(owner, "__dict__", {}).items())
    return {
        name: value for name, value in items if (name[0] == "_") is is_private and is_plain(value, *types)
    }
