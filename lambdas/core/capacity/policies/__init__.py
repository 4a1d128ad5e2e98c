"""The capacity policies, a module each, what they reckon with, and the one place that knows their names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final

from lambdas.core.capacity.plan import Policy
from lambdas.core.capacity.policies.expected_cost import ExpectedCost
from lambdas.core.capacity.policies.ready_handover import ReadyHandover

DEFAULT: Final = ExpectedCost.name

_POLICIES: Final[dict[str, type[Any]]] = {policy.name: policy for policy in (ExpectedCost, ReadyHandover)}

NAMES: Final = tuple(_POLICIES)


def build(name: str, knobs: Mapping[str, float] | None = None) -> Policy:
    """Return the policy ``name`` with its knobs set; raise ``ValueError`` naming what is unknown.

    Knobs are spelled as in the config: ``shortageCost`` sets the field ``shortage_cost``.
    """
    if name not in _POLICIES:
        raise ValueError(f"policy {name!r} is unknown, allowed: {', '.join(NAMES)}")
    policy = _POLICIES[name]
    fields = {_camel(field.name): field.name for field in dataclasses.fields(policy)}
    for knob in knobs or {}:
        if knob not in fields:
            listed = ", ".join(sorted(fields)) or "none"
            raise ValueError(f"policy {name!r} has no knob {knob!r}, allowed: {listed}")
    built: Policy = policy(**{fields[knob]: value for knob, value in (knobs or {}).items()})
    return built


def shortage_cost(policy: Policy) -> float:
    """Return what a worker-minute of shortage is worth to a policy, in on-demand minutes.

    ``inf`` for one that knows no price and always buys.
    """
    return float(getattr(policy, "shortage_cost", math.inf))


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)
