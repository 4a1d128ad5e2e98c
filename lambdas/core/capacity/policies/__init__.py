"""The capacity policies, a module each, what they reckon with, and what builds one by its name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final

from contracts.group import policies
from contracts.stored import camel_case
from lambdas.core.capacity.plan import Policy
from lambdas.core.capacity.policies.expected_cost import ExpectedCost
from lambdas.core.capacity.policies.ready_handover import ReadyHandover

DEFAULT: Final = policies.DEFAULT
NAMES: Final = policies.NAMES

_POLICIES: Final[dict[str, type[Any]]] = {policy.name: policy for policy in (ExpectedCost, ReadyHandover)}


def build(name: str, knobs: Mapping[str, float] | None = None) -> Policy:
    """Return the policy ``name`` with its knobs set; raise ``ValueError`` naming what is not allowed.

    Knobs are spelled as in the config: ``shortageCost`` sets the field ``shortage_cost``.
    """
    policies.check(name, knobs)
    policy = _POLICIES[name]
    fields = {camel_case(field.name): field.name for field in dataclasses.fields(policy)}
    built: Policy = policy(**{fields[knob]: value for knob, value in (knobs or {}).items()})
    return built


def shortage_cost(policy: Policy) -> float:
    """Return what a worker-minute of shortage is worth to a policy, in on-demand minutes.

    ``inf`` for one that knows no price and always buys.
    """
    return float(getattr(policy, "shortage_cost", math.inf))
