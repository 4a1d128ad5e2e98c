"""Differences of two values by path; a list of strings, such as a command, is one value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpu_spot.markdown import code, label, short


def value_differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, old and new value of each difference, None if missing. JSON text is parsed."""
    old_value, new_value = _parse_json(old), _parse_json(new)
    if isinstance(old_value, dict) and isinstance(new_value, dict):
        for key in sorted(old_value.keys() | new_value.keys()):
            yield from value_differences(old_value.get(key), new_value.get(key), f"{path}.{key}".lstrip("."))
    elif _is_list_of_objects(old_value) and _is_list_of_objects(new_value):
        for index in range(max(len(old_value), len(new_value))):
            before, after = (
                values[index] if index < len(values) else None for values in (old_value, new_value)
            )
            yield from value_differences(before, after, f"{path}[{index}]")
    elif old != new:
        yield path, old, new


def difference_lines(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the differences in Markdown, each as ``path: old → new``."""
    for key, old_value, new_value in value_differences(old, new, path):
        yield f"{label(key) if key else 'value'}: {_format_value(old_value)} → {_format_value(new_value)}"


def shown(value: Any, max_length: int) -> str:
    """Return a value on one line: a list of strings as a shell line, other lists and objects as JSON."""
    if isinstance(value, str):
        return short(value, max_length)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return short(" ".join(value), max_length)
    return short("none" if value is None else json.dumps(value, ensure_ascii=False), max_length)


def _format_value(value: Any) -> str:
    return "*none*" if value is None else code(shown(value, 160))


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _parse_json(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value
