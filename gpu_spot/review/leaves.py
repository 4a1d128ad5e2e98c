"""What two values differ in, down to the last key; a list of texts, such as a command, is one value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gpu_spot.review.text import code, short


def leaves(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, old and new value of each difference; None where there is none. JSON in a text is read."""
    one, other = _opened(old), _opened(new)
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from leaves(one.get(key), other.get(key), f"{path}.{key}".lstrip("."))
    elif _is_list_of_objects(one) and _is_list_of_objects(other):
        for place in range(max(len(one), len(other))):
            before, after = (side[place] if place < len(side) else None for side in (one, other))
            yield from leaves(before, after, f"{path}[{place}]")
    elif old != new:
        yield path, old, new


def lines(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the differences in Markdown, ``path: old → new`` each."""
    for key, one, other in leaves(old, new, path):
        yield f"{key}: {_marked(one)} → {_marked(other)}"


def shown(value: Any, most: int) -> str:
    """Return a value on one line: a list of texts as a line of a shell, other lists and objects as JSON."""
    if isinstance(value, str):
        return short(value, most)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return short(" ".join(value), most)
    return short("none" if value is None else json.dumps(value, ensure_ascii=False), most)


def _marked(value: Any) -> str:
    return "*none*" if value is None else code(shown(value, 160))


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(one, dict) for one in value)


def _opened(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value
