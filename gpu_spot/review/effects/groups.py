"""Services, jobs and shared hosts in a preview: which resource belongs to which, and how many workers run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpu_spot.review.preview import UNCHANGED, EngineStep
from gpu_spot.review.values import is_hidden, items, mapping, number

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
<<<<<<< HEAD
    new: set[str] = set()
    unrestarted: set[str] = set()
=======
    new, scaled = set[str](), set[str]()
>>>>>>> 2ed0e8bf (Good stack files in pairs of options; an emptied group ends 0 workers; one finder of a stack's tables; tag:GetResources has no resources)
    operations: dict[str, set[str]] = {}
    for step in steps:
        group = group_of(step)
        if not group:
            continue
        operations.setdefault(group, set()).add(step.op)
        targets.setdefault(group, None)
<<<<<<< HEAD
        if step.type == PARAMETER and step.name.endswith("-health") and _restarts_none(value_of(step.now)):
            unrestarted.add(group)
=======
        if step.type == PARAMETER and step.name.endswith("-scaling") and not is_dry_run(step):
            scaled.add(group)
>>>>>>> 2ed0e8bf (Good stack files in pairs of options; an emptied group ends 0 workers; one finder of a stack's tables; tag:GetResources has no resources)
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
<<<<<<< HEAD
    return Groups(targets, frozenset(new), removed, frozenset(unrestarted))


def _restarts_none(health: str) -> bool:
    try:
        return mapping(json.loads(health)).get("mostAtOnce") == 0
    except ValueError:
        return False
=======
    targets |= dict.fromkeys(scaled)
    return Groups(targets, frozenset(new), removed)
>>>>>>> 2ed0e8bf (Good stack files in pairs of options; an emptied group ends 0 workers; one finder of a stack's tables; tag:GetResources has no resources)


def value_of(inputs: Mapping[str, Any]) -> str:
    """Return the value of a parameter."""
    return str(inputs.get("insecureValue") or inputs.get("value") or "")


def is_dry_run(step: EngineStep) -> bool:
    """Return whether a scaler sets no target before and after a change."""
    settings = [settings_of(inputs) for inputs in (step.old, step.new) if inputs]
    return all(item is not None and item.get("dryRun") is True for item in settings)


def settings_of(inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the settings in a parameter; None if they are unknown or not JSON."""
    text = value_of(inputs)
    try:
        settings = json.loads(text)
    except ValueError:
        return None
    return settings if isinstance(settings, dict) and not is_hidden(text) else None


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
