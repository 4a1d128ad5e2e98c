"""Weights: the capacity units of an instance by type.

Auto Scaling user guide, "Configure an Auto Scaling group to use instance weights": capacities are in units,
and launches continue until the desired capacity is reached or exceeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from moto.autoscaling.models import FakeAutoScalingGroup, InstanceState

MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 999
"""Valid weights (API reference, ``LaunchTemplateOverrides``)."""


def check_weights(overrides: Sequence[Mapping[str, Any]]) -> str | None:
    """Return Auto Scaling's error for the weights of these overrides, None if they are valid."""
    weights = [override["WeightedCapacity"] for override in overrides if "WeightedCapacity" in override]
    if weights and len(weights) < len(overrides):
        return f"all overrides or none must have a WeightedCapacity, not {len(weights)} of {len(overrides)}"
    wrong = [
        weight
        for weight in weights
        if not (str(weight).isdecimal() and MIN_WEIGHT <= int(weight) <= MAX_WEIGHT)
    ]
    return f"WeightedCapacity must be from {MIN_WEIGHT} to {MAX_WEIGHT}, not {wrong[0]}" if wrong else None


def weigh(group: FakeAutoScalingGroup, state: InstanceState) -> None:
    """Set a new member's weight by its type, which DescribeAutoScalingGroups then shows."""
    policy: Mapping[str, Any] = group.mixed_instances_policy or {}
    for override in policy.get("LaunchTemplate", {}).get("Overrides") or []:
        if override.get("InstanceType") == state.instance_type and "WeightedCapacity" in override:
            state.weighted_capacity = str(override["WeightedCapacity"])  # type: ignore[attr-defined]


def weight(state: InstanceState) -> int:
    """Return the weight of a member; 1 in a group without weights."""
    return int(getattr(state, "weighted_capacity", 1))


def capacity(members: Iterable[InstanceState]) -> int:
    """Return the sum of members' weights."""
    return sum(map(weight, members))
