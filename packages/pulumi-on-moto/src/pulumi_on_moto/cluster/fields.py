"""An object as the set of fields of server-side apply.

Source: Kubernetes, "Server-Side Apply", "Merge strategy". A field is a path of keys; list items with a
``name`` (containers, their variables) are merged by name, mounts by ``mountPath``, other lists are one value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str, ...]
"""Path from the object's root; ``[name]`` is an item of a merged list."""


def fields(manifest: Mapping[str, Any]) -> dict[Path, Any]:
    """Return an object's fields by path."""
    return dict(_walk(manifest, ()))


def joined(fields_by_path: Mapping[Path, Any]) -> dict[str, Any]:
    """Return the object with these fields."""
    nested: dict[str, Any] = {}
    for path, value in fields_by_path.items():
        level = nested
        for key in path[:-1]:
            level = level.setdefault(key, {})
        level[path[-1]] = value
    result: dict[str, Any] = _listed(nested)
    return result


def merge_key(item: Mapping[str, Any]) -> Any:
    """Return what identifies an item of a merged list; None if nothing does."""
    return item.get("mountPath", item.get("name"))


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _walk(item, (*path, key))
    elif isinstance(value, list) and _is_merged(value):
        for item in value:
            yield from _walk(item, (*path, f"[{merge_key(item)}]"))
    else:
        yield path, value


def _is_merged(items: list[Any]) -> bool:
    names = [merge_key(item) for item in items if isinstance(item, Mapping)]
    return bool(items) and len(set(names)) == len(items) and all(isinstance(name, str) for name in names)


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.startswith("[") and key.endswith("]") for key in value):
        return [_listed(item) for item in value.values()]
    return {key: _listed(item) for key, item in value.items()}
