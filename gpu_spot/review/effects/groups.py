"""Services, jobs and shared hosts in a preview: which resource belongs to which, and how many workers run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpu_spot.review.preview import UNCHANGED, EngineStep
from gpu_spot.review.values import items, mapping, number

PARAMETER: Final = "aws:ssm/parameter:Parameter"
_GROUP: Final = "gpu-spot:group"
_GROUP_ROLE: Final = "gpu-spot:side"
_LABEL: Final = "gpu-spot/group"


@dataclass(frozen=True)
class Groups:
    """Groups of a stack before the change.

    Attributes:
        targets: target of each group; None if it is unknown, if a scaler sets it, or if its workers are pods.
        new: groups that this change creates, also those that come to instances from Kubernetes.
        removed: groups of which everything is deleted.
        unrestarted: groups whose health checker restarts no worker (``maxUnavailablePercent: 0``).
    """

    targets: Mapping[str, int | None]
    new: frozenset[str]
    removed: frozenset[str] = frozenset()
    unrestarted: frozenset[str] = frozenset()

    def of(self, step: EngineStep) -> str:
        """Return a resource's group by its tag or label, else by its name; empty for one of the stack."""
        if tagged := group_of(step):
            return tagged
        parts = step.name.split("-")
        # A group's name may have hyphens. The longest one wins.
        fitting = [name for name in self.targets if _is_inside(name.split("-"), parts)]
        return max(fitting, key=len, default="")


def _is_inside(group: Sequence[str], parts: Sequence[str]) -> bool:
    return any(parts[at : at + len(group)] == group for at in range(len(parts) - len(group) + 1))


def find_groups(steps: Sequence[EngineStep]) -> Groups:
    """Return the groups of a preview."""
    targets: dict[str, int | None] = {}
    new, unrestarted, scaled = set[str](), set[str](), set[str]()
    operations: dict[str, set[str]] = {}
    for step in steps:
        group = group_of(step)
        if not group:
            continue
        operations.setdefault(group, set()).add(step.op)
        targets.setdefault(group, None)
        if step.type == PARAMETER and step.name.endswith("-health") and _says(step.now, "mostAtOnce", 0):
            unrestarted.add(group)
        if step.type == PARAMETER and step.name.endswith("-scaling"):
            # The state keeps the target as it was declared; a scaler that only logs does not change it.
            is_dry = all(_says(inputs, "dryRun", True) for inputs in (step.old, step.new) if inputs)
            scaled |= set() if is_dry else {group}
        if not (step.type == PARAMETER and step.name.endswith("-target")):
            continue
        if step.op == "create":
            new.add(group)
        else:
            targets[group] = number(
                value_of(step.old or step.new) if step.op not in UNCHANGED else value_of(step.now)
            )
    new |= {group for group, names in operations.items() if names <= {"create"}}
    removed = frozenset(group for group, names in operations.items() if names == {"delete"})
    return Groups(targets | dict.fromkeys(scaled), frozenset(new), removed, frozenset(unrestarted))


def _says(inputs: Mapping[str, Any], key: str, value: object) -> bool:
    try:
        return bool(mapping(json.loads(value_of(inputs))).get(key) == value)
    except ValueError:
        return False


def value_of(inputs: Mapping[str, Any]) -> str:
    """Return the value of a parameter."""
    return str(inputs.get("insecureValue") or inputs.get("value") or "")


def group_of(step: EngineStep) -> str:
    """Return the service or job of a resource from its tag or label, empty for a resource of the stack."""
    labels = mapping(mapping(step.now.get("metadata")).get("labels"))
    return str(labels.get(_LABEL) or _tag(step, _GROUP))


def role_of(step: EngineStep) -> str:
    """Return whether a resource belongs to the ``primary`` or the ``fallback`` group."""
    return _tag(step, _GROUP_ROLE)


def _tag(step: EngineStep, key: str) -> str:
    tags = step.now.get("tags")
    if isinstance(tags, list):  # of an Auto Scaling group
        tags = {mapping(tag).get("key"): mapping(tag).get("value") for tag in items(tags)}
    return str(mapping(tags).get(key, ""))
