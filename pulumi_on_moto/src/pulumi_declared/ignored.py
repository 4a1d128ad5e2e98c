"""Inputs whose changes a program ignores (``ignore_changes``): the engine takes them from the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def with_ignored(inputs: Mapping[str, Any], old: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """Return inputs with the state's values at the ignored paths, such as ``vpcConfig.subnetIds``.

    A value that is not in the state stays the program's.

    Raises:
        ValueError: a path has an index or a quoted key, such as ``tags["x"]``.
    """
    result = dict(inputs)
    for path in paths:
        if "[" in path:
            raise ValueError(f"ignored path {path!r}, allowed: names of inputs, separated by dots")
        name, _, below = path.partition(".")
        if name not in old:
            continue
        if not below:
            result[name] = old[name]
        elif isinstance(result.get(name), Mapping) and isinstance(old[name], Mapping):
            result[name] = with_ignored(result[name], old[name], [below])
    return result
