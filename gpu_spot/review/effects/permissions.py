"""Policies before and after a change: whether more is allowed, or less."""

from __future__ import annotations

import json
from typing import Any

from gpu_spot.review.values import is_hidden, items


def compare_policies(old: Any, new: Any) -> str:
    """Return ``grows`` if all that was allowed still is, and more; ``shrinks`` if something goes.

    An empty text if both allow the same, ``unknown`` if one cannot be read.
    """
    if is_hidden([old, new]):
        return "unknown"
    try:
        before, after = _statements(old), _statements(new)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "unknown"
    less = before["Allow"] - after["Allow"] | after["Deny"] - before["Deny"]
    more = after["Allow"] - before["Allow"] | before["Deny"] - after["Deny"]
    return "shrinks" if less else "grows" if more else ""


def _statements(policy: Any) -> dict[str, set[tuple[str, ...]]]:
    document = json.loads(policy) if isinstance(policy, str) else policy or {"Statement": []}
    parts: dict[str, set[tuple[str, ...]]] = {"Allow": set(), "Deny": set()}
    for statement in items(document["Statement"]) or [document["Statement"]]:
        if statement == []:
            continue
        rest = {key: statement[key] for key in statement.keys() - {"Sid", "Effect", "Action", "Resource"}}
        for action in _listed(statement.get("Action")):
            for resource in _listed(statement.get("Resource", "")):
                parts[statement["Effect"]].add((action, resource, json.dumps(rest, sort_keys=True)))
    return parts


def _listed(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]
