"""Policies for training jobs with a deadline, and the safety rules that override them."""

from __future__ import annotations

from typing import Any, Final

from lambdas.core.deadline.expected_cost import ExpectedJobCost
from lambdas.core.deadline.model import DeadlinePolicy
from research.simulation.deadline.policies.baselines import (
    AlwaysOnDemand,
    Greedy,
    UniformProgress,
    UniformProgressAtOnce,
    UniformProgressKeep,
)

DEFAULT: Final = ExpectedJobCost.name

_POLICIES: Final[dict[str, type[Any]]] = {
    policy.name: policy
    for policy in (
        AlwaysOnDemand,
        Greedy,
        UniformProgress,
        UniformProgressAtOnce,
        UniformProgressKeep,
        ExpectedJobCost,
    )
}

NAMES: Final = tuple(_POLICIES)
BASELINES: Final = tuple(name for name in NAMES if name != DEFAULT)


def build(name: str) -> DeadlinePolicy:
    """Return the policy ``name``; raise ``ValueError`` with the allowed names if it is unknown."""
    if name not in _POLICIES:
        raise ValueError(f"deadline policy {name!r} is unknown; use {' or '.join(NAMES)}")
    policy: DeadlinePolicy = _POLICIES[name]()
    return policy


def named(text: str) -> dict[str, DeadlinePolicy]:
    """Return the policies in ``NAME[,NAME…]`` or ``all``, by name; ``ValueError`` for an unknown name."""
    names = NAMES if text == "all" else tuple(name.strip() for name in text.split(","))
    return {name: build(name) for name in names}
