"""Weights: for how much an instance of a type counts against the capacities of its group.

Auto Scaling user guide, "Configure an Auto Scaling group to use instance weights": capacities are in units,
and launches go on until the desired capacity is reached, even if that brings more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from moto.autoscaling.models import FakeAutoScalingGroup, InstanceState

MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 999
"""What a weight may be (API reference, ``LaunchTemplateOverrides``)."""


def check_weights(overrides: Sequence[Mapping[str, Any]]) -> str | None:
    """Return how Auto Scaling refuses the weights of these overrides, None where it does not."""
    weights = [override["WeightedCapacity"] for override in overrides if "WeightedCapacity" in override]
    if weights and len(weights) < len(overrides):
        return (
            f"{len(weights)} of {len(overrides)} overrides have a WeightedCapacity, all or none are allowed"
        )
    wrong = [
        weight
        for weight in weights
        if not (str(weight).isdecimal() and MIN_WEIGHT <= int(weight) <= MAX_WEIGHT)
    ]
    return f"WeightedCapacity {wrong[0]}, {MIN_WEIGHT} to {MAX_WEIGHT} is allowed" if wrong else None


def weigh(group: FakeAutoScalingGroup, state: InstanceState) -> None:
    """Have a new member carry its type's weight, which DescribeAutoScalingGroups then shows."""
    policy: Mapping[str, Any] = group.mixed_instances_policy or {}
    for override in policy.get("LaunchTemplate", {}).get("Overrides") or []:
        if override.get("InstanceType") == state.instance_type and "WeightedCapacity" in override:
            state.weighted_capacity = str(override["WeightedCapacity"])  # type: ignore[attr-defined]


def weight(state: InstanceState) -> int:
    """Return for how much a member counts; 1 in a group without weights."""
    return int(getattr(state, "weighted_capacity", 1))


def capacity(members: Iterable[InstanceState]) -> int:
    """Return for how much members count together."""
    return sum(map(weight, members))
