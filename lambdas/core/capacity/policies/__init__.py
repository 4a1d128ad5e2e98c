"""The capacity policies, one module each, and their factory."""

from __future__ import annotations

import dataclasses
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


def build(name: str, parameters: Mapping[str, float] | None = None) -> Policy:
    """Create the policy ``name``; raise ``ValueError`` for an unknown name or an invalid parameter.

    Parameters have the keys of the stack file: ``shortageCost`` sets the field ``shortage_cost``.
    """
    policies.check(name, parameters)
    policy = _POLICIES[name]
    fields = {camel_case(field.name): field.name for field in dataclasses.fields(policy)}
    result: Policy = policy(**{fields[key]: value for key, value in (parameters or {}).items()})
    return result
