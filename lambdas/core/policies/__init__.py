"""The capacity policies, a module each, and the one place that knows their names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from lambdas.core.plan import Policy
from lambdas.core.policies.ready_handover import ReadyHandover

DEFAULT: Final = ReadyHandover.name

_POLICIES: Final[dict[str, type[Any]]] = {policy.name: policy for policy in (ReadyHandover,)}

NAMES: Final = tuple(_POLICIES)


def build(name: str, knobs: Mapping[str, float] | None = None) -> Policy:
    """Return the policy ``name`` with its knobs set; raise ``ValueError`` naming what is unknown."""
    if name not in _POLICIES:
        raise ValueError(f"policy {name!r} is unknown, allowed: {', '.join(NAMES)}")
    policy = _POLICIES[name]
    allowed = {field.name for field in dataclasses.fields(policy)}
    for knob in knobs or {}:
        if knob not in allowed:
            listed = ", ".join(sorted(allowed)) or "none"
            raise ValueError(f"policy {name!r} has no knob {knob!r}, allowed: {listed}")
    built: Policy = policy(**(knobs or {}))
    return built
