"""Effects of a preview on workers: the table of consequences applied to its steps."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from gpu_spot.markdown import code, label
from gpu_spot.review import boot_data
from gpu_spot.review.effects.axes import DATA, axis_effects, left_behind
from gpu_spot.review.effects.consequences import CONSEQUENCES, TYPES, Consequence, Severity
from gpu_spot.review.effects.effect import MAY_END, Effect, changed_words, may_end, named, workers
from gpu_spot.review.effects.groups import PARAMETER, Groups, find_groups, group_of, role_of
from gpu_spot.review.effects.harmless import is_harmless
from gpu_spot.review.effects.kubernetes import kubernetes_effects
from gpu_spot.review.effects.parameters import parameter_effects
from gpu_spot.review.preview import EngineStep, Preview
from gpu_spot.review.value_diff import difference_lines
from gpu_spot.review.values import has_unknown, items, mapping, number
from gpu_spot.text import counted

_GROUP_KINDS: Final = frozenset({"Group", "LaunchTemplate", "SpotFleetRequest"})
"""Kinds that are named by their group alone."""

_REDUNDANT_INPUTS: Final = frozenset({"description", "tagSpecifications", "tags"})
"""Inputs of a launch template that repeat its boot data and group."""

_HOLDING_SUBNETS: Final = frozenset({"Group", "SpotFleetRequest", "EC2NodeClass", "NodeGroup", "Broker"})
"""Kinds whose instances are in the subnets that they name."""


_ADDRESSES: Final = frozenset(
    {
        *("aws:lb/listener:Listener", "aws:lb/loadBalancer:LoadBalancer", "aws:lb/targetGroup:TargetGroup"),
        "aws:route53/record:Record",
    }
)
"""Types of an HTTP service's address: their change ends no worker."""

_ACCESS_POINT: Final = re.compile(r"access-point/(fsap-[0-9a-f]+)")


@dataclass(frozen=True)
class Meaning:
    """The effects of a preview, most severe first, and the groups that are not affected.

    ``notes`` say what the engine does to its state alone. If the preview ``is_whole``, nothing else changes.
    """

    effects: tuple[Effect, ...]
    untouched: tuple[str, ...]
    notes: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def worst(self) -> Severity:
        """The highest severity of all effects."""
        return max((effect.severity for effect in self.effects), default=Severity.NOTHING)

    @property
    def worst_for_workers(self) -> Severity:
        """The highest severity of the effects on workers."""
        return max(
            (effect.severity for effect in self.effects if effect.axis == "workers"), default=Severity.NOTHING
        )

    def directions(self, axis: str) -> frozenset[str]:
        """Return how an axis changes: ``grows``, ``shrinks``, ``unknown``; empty if it does not."""
        shown = {effect.direction for effect in self.effects if effect.axis == axis and effect.direction}
        shown |= {"shrinks"} if axis == DATA and self.worst is Severity.LOST else set()
        return frozenset(shown if self.is_whole else {*shown, "unknown"})

    def groups(self, severity: Severity) -> tuple[str, ...]:
        """Return the groups with an effect of a severity, sorted by name."""
        return tuple(
            sorted({effect.group for effect in self.effects if effect.severity is severity and effect.group})
        )


def assess_preview(preview: Preview) -> Meaning:
    """Apply the table of consequences to every change of a preview."""
    groups = find_groups(preview.steps)
    effects = [Effect(Severity.UNKNOWN, "", f"{limitation}: {MAY_END}") for limitation in preview.limitations]
    if preview.errors:
        effects.append(Effect(Severity.UNKNOWN, "", f"the preview failed: what else changes {MAY_END}"))
    if unprotected := [named(step) for step in preview.steps if step.unprotected and step.op != "delete"]:
        words = "deletion protection is removed: the engine no longer refuses to delete"
        effects.append(Effect(Severity.WATCH, "", words, tuple(unprotected)))
    for step in preview.changes:
        effects += _effects(step, groups, preview)
        if step.op != "import" and not (step.op == "delete" and step.retained):
            effects += axis_effects(step, groups, preview.steps)
    effects += left_behind(groups, preview.changes)
    effects = sorted(
        _merged(effects, groups), key=lambda effect: (-effect.severity, effect.group, effect.words)
    )
    touched = {
        effect.group for effect in effects if effect.severity > Severity.NOTHING and effect.axis == "workers"
    }
    untouched = tuple(sorted(groups.targets.keys() - touched)) if preview.is_whole else ()
    return Meaning(tuple(effects), untouched, tuple(_notes(preview)), preview.is_whole)


def _merged(effects: list[Effect], groups: Groups) -> Iterator[Effect]:
    """Yield one effect for each sentence about a group, without doubts about workers that end anyway.

    Of a group with target 0 no worker ends: that is counted.
    """
    ended = {effect.group for effect in effects if effect.ends_all}
    details: dict[Effect, list[str]] = defaultdict(list)
    for effect in effects:
        if effect.words != MAY_END or effect.group not in ended:
            details[replace(effect, details=())] += effect.details
    for effect, lines in details.items():
        distinct = dict.fromkeys(lines)
        if effect.severity is Severity.ENDS and groups.targets.get(effect.group) == 0:
            effect = replace(effect, count=0)
        # The engine's steps are in no fixed order.
        yield replace(effect, details=tuple(sorted(distinct) if effect.words == MAY_END else distinct))


def _notes(preview: Preview) -> Iterator[str]:
    if renamed := sum(step.renamed for step in preview.steps if step.op not in ("create", "delete")):
        yield f"{counted(renamed, 'resource')} renamed in the state by an alias, which replaces nothing"
    for op, words in (
        ("import", "imported as they are"),
        ("delete", "leave the state and stay in the account"),
    ):
        names = [
            code(step.name) for step in preview.steps if step.op == op and (op == "import" or step.retained)
        ]
        if names:
            yield f"{words}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"


def _effects(step: EngineStep, groups: Groups, preview: Preview) -> Iterator[Effect]:
    if step.op == "import" or (step.op == "delete" and step.retained):
        return
    if step.type.startswith("kubernetes:"):
        yield from kubernetes_effects(step, groups)
        return
    group = groups.of(step)
    if step.kind == "RolePolicy" and _moves_checkpoints(step, group, preview):
        words = (
            "**begins again at step 0**: its checkpoints stay where they are, and none is copied to the new "
            "place (copy them first, or keep `checkpoints`)"
        )
        yield Effect(Severity.LOST, group, words)
    if step.op == "create" and _is_primary(step):
        yield Effect(Severity.LATER, group, "new group, which starts empty")
    if step.type == PARAMETER:
        yield from parameter_effects(step, group, groups)
        return
    if step.type in _ADDRESSES and step.op != "create":
        words = f"{named(step)} {changed_words(step)}: look whether callers still reach the service"
        yield Effect(Severity.WATCH, group, words)
        return
    special = _SPECIAL.get(step.type)
    if special is not None and (effects := special(step, group, preview)) is not None:
        yield from effects
        return
    matching = [consequence for consequence in CONSEQUENCES if _fits(consequence, step)]
    for consequence in matching or _deletion(step):
        yield _consequence(consequence, step, group, groups)
    same_operation = [item for item in preview.changes if item.op == step.op]
    if not (is_harmless(step, same_operation) or _is_covered(step, matching)):
        yield may_end(step, group)


def _moves_checkpoints(step: EngineStep, group: str, preview: Preview) -> bool:
    """Return whether a job that exists gets another place for its checkpoints: by its role's access points.

    A policy is unknown when it names what the update creates: an access point, if it creates one.
    """
    is_job = any(
        present.type == PARAMETER and present.name.endswith(f"{group}-finished") and present.op != "create"
        for present in preview.steps
    )
    if not is_job or not group or step.op != "update":
        return False
    old, new = (str(inputs.get("policy", "")) for inputs in (step.old, step.new))
    if has_unknown(step.new.get("policy")):
        created = ("create", "replace")
        return any(present.kind == "AccessPoint" and present.op in created for present in preview.steps)
    return set(_ACCESS_POINT.findall(old)) != set(_ACCESS_POINT.findall(new))


def _is_primary(step: EngineStep) -> bool:
    return step.type in (TYPES["Group"], TYPES["SpotFleetRequest"]) and role_of(step) == "primary"


def _fits(consequence: Consequence, step: EngineStep) -> bool:
    by = set(step.forcing) if step.op == "replace" else set(step.changed)
    return (
        consequence.op == step.op
        and TYPES[consequence.kind] == step.type
        and (not consequence.inputs or bool(consequence.inputs & by))
        and consequence.group_role in ("", role_of(step))
    )


def _deletion(step: EngineStep) -> list[Consequence]:
    """Return what a replacement means that no row has: the old resource is deleted, unless it is retained."""
    if step.op != "replace" or step.retained:
        return []
    rows = [consequence for consequence in CONSEQUENCES if _fits(consequence, replace(step, op="delete"))]
    return [replace(row, words=row.words.replace("is deleted", "is replaced")) for row in rows]


def _is_covered(step: EngineStep, matching: list[Consequence]) -> bool:
    """Return whether the table speaks of every input that changes; a replacement is one change."""
    if not matching or step.op not in ("update", "replace"):
        return bool(matching)
    if step.op == "replace":
        return True
    inputs = frozenset[str]().union(*(consequence.inputs for consequence in matching))
    rest = tuple(key for key in step.changed if key not in inputs)
    whole = any(not consequence.inputs for consequence in matching)
    return whole or not rest or is_harmless(replace(step, changed=rest))


def _consequence(consequence: Consequence, step: EngineStep, group: str, groups: Groups) -> Effect:
    count = groups.targets.get(group)
    words = consequence.words.format(count=workers(count))
    subject = "" if group and consequence.kind in _GROUP_KINDS else f"{named(step)} "
    whole = "{count}" in consequence.words
    details = _details(step, consequence.inputs)
    return Effect(
        consequence.severity, group, subject + words, details, count if whole else None, ends_all=whole
    )


def _details(step: EngineStep, inputs: frozenset[str]) -> tuple[str, ...]:
    """Return the changed values if they say more than the name of the input."""
    if step.op == "replace":
        return (f"because of {', '.join(sorted(inputs & set(step.forcing)))}",) if inputs else ()
    if step.op != "update":
        return ()
    if step.kind == "LaunchTemplate":
        return tuple(_template(step))
    if step.kind == "Group" and "mixedInstancesPolicy" in inputs:
        return tuple(_mix(step))
    if step.kind == "Group":
        return tuple(_bounds(step, inputs))
    return ()


def _template(step: EngineStep) -> Iterator[str]:
    for key in step.changed:
        if key == "userData":
            yield from boot_data.describe_difference(str(step.old.get(key, "")), str(step.new.get(key, "")))
        elif key not in _REDUNDANT_INPUTS:
            yield from difference_lines(step.old.get(key), step.new.get(key), key)


def _mix(step: EngineStep) -> Iterator[str]:
    old_types, new_types = list(_weights(step.old)), list(_weights(step.new))
    if added := [name for name in new_types if name not in old_types]:
        yield f"types added: {code(', '.join(added))}"
    if removed := [name for name in old_types if name not in new_types]:
        yield f"types removed: {code(', '.join(removed))}"
    if sorted(old_types) == sorted(new_types) and old_types != new_types:
        yield f"new order of types: {code(', '.join(new_types))}"
    yield from difference_lines(_shares(step.old), _shares(step.new))


def _shares(inputs: Mapping[str, Any]) -> Any:
    return mapping(mapping(inputs.get("mixedInstancesPolicy")).get("instancesDistribution"))


def _bounds(step: EngineStep, inputs: frozenset[str]) -> Iterator[str]:
    for key in sorted(inputs & set(step.changed)):
        yield from difference_lines(step.old.get(key), step.new.get(key), key)
    if "maxSize" in inputs and (number(step.new.get("maxSize")) or 0) < (
        number(step.old.get("maxSize")) or 0
    ):
        yield "instances above the maximum are terminated: at once if they are starting, else one by one"


def _overrides(inputs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    template = mapping(mapping(inputs.get("mixedInstancesPolicy")).get("launchTemplate"))
    return [mapping(override) for override in items(template.get("overrides"))]


def _group(step: EngineStep, group: str, preview: Preview) -> list[Effect] | None:
    """Return what a changed Auto Scaling group means beyond the table."""
    if step.op != "update":
        return None
    effects = []
    maxima = [number(inputs.get("maxSize")) or 0 for inputs in (step.old, step.new)]
    if maxima[1] < maxima[0] and not any(_is_config(change, group) for change in preview.changes):
        effects.append(may_end(step, group, "has a lower maximum size"))
    if "mixedInstancesPolicy" in step.changed:
        if has_unknown(_overrides(step.new)) or has_unknown(_shares(step.new)):
            effects.append(may_end(step, group, "has another mix, known after the update"))
        before, after = _weights(step.old), _weights(step.new)
        if any(before[name] != after[name] for name in before.keys() & after.keys()):
            effects.append(may_end(step, group, "counts instances by other weights"))
    zones = (step.old.get("vpcZoneIdentifiers"), step.new.get("vpcZoneIdentifiers"))
    if "vpcZoneIdentifiers" in step.changed and not all(zone in items(zones[1]) for zone in items(zones[0])):
        effects.append(may_end(step, group, "leaves a zone, in which instances may run"))
    changed = tuple(
        key for key in step.changed if key != "mixedInstancesPolicy" or not _is_only_version(step)
    )
    if any("leaves a zone" in detail for effect in effects for detail in effect.details):
        changed = tuple(key for key in changed if key != "vpcZoneIdentifiers")
    step = replace(step, changed=changed)
    matching = [consequence for consequence in CONSEQUENCES if _fits(consequence, step)]
    effects += [Effect(item.severity, group, item.words, _details(step, item.inputs)) for item in matching]
    if changed and not _is_covered(step, matching) and not is_harmless(step):
        effects.append(may_end(step, group))
    return effects


def _is_config(step: EngineStep, group: str) -> bool:
    return step.type == PARAMETER and group_of(step) == group and step.name.endswith("-config")


def _is_only_version(step: EngineStep) -> bool:
    """Return whether a group only takes another version of its launch template, which has its own step."""
    return _overrides(step.old) == _overrides(step.new) and _shares(step.old) == _shares(step.new)


def _weights(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weight of each type of an Auto Scaling group, in order."""
    return {
        str(override["instanceType"]): override.get("weightedCapacity")
        for override in _overrides(inputs)
        if "instanceType" in override
    }


def _subnet(step: EngineStep, group: str, preview: Preview) -> list[Effect] | None:
    """Return what a deleted subnet means: the end of what runs in it, if a group used it."""
    if step.op != "delete":
        return None
    users = [item for item in preview.steps if item.kind in _HOLDING_SUBNETS and item.op != "create"]
    if step.id and any(step.id in json.dumps(dict(item.old or item.new), default=str) for item in users):
        words = f"{named(step)} is deleted, **and its instances are terminated**"
        return [Effect(Severity.ENDS, group, words)]
    if step.id and users:
        return [Effect(Severity.NOTHING, group, f"{named(step)} is deleted; no group used it")]
    return None


def _object(step: EngineStep, group: str, preview: Preview) -> list[Effect] | None:
    """Return what a changed object means: the agent's archive, or the tenants of a shared host."""
    key = str(step.now.get("key", ""))
    if step.op not in ("update", "replace"):
        return None
    if not key.endswith("/tenants.json"):
        return [] if step.name.endswith("-agent") else None
    before, after = (_tenants(inputs.get("content")) for inputs in (step.old, step.new))
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    listed = f"of {code(', '.join(names))}"
    if has_unknown(step.new.get("content")):
        listed = "that are known after the update"
    return [may_end(step, group, f"has changes {listed}: look whose containers are replaced")]


def _tenants(text: Any) -> dict[str, Any]:
    """Return the tenants of a list by name; none if it is unknown."""
    try:
        listed = items(mapping(json.loads(text)).get("tenants"))
    except (TypeError, ValueError):
        return {}
    return {str(mapping(tenant).get("name")): tenant for tenant in listed}


def _function(step: EngineStep, group: str, preview: Preview) -> list[Effect] | None:
    """Return what a changed setting of a function means: what goes from a list may be a worker's queue."""
    settings = (mapping(inputs.get("environment")) for inputs in (step.old, step.new))
    old, new = (mapping(setting.get("variables")) for setting in settings)
    if step.op != "update" or not old:
        return None
    removed = find_groups(preview.steps).removed
    names = [name for name in sorted(old) if not _keeps(old[name], new.get(name), removed)]
    return [may_end(step, group, f"has other settings ({', '.join(map(label, names))})")] if names else None


def _keeps(old: Any, new: Any, removed: Set[str]) -> bool:
    """Return whether a setting is the same, or a list of which only removed groups' elements go."""
    if old == new:
        return True
    try:
        before, after = (items(json.loads(value)) for value in (old, new))
    except (TypeError, ValueError):
        return False
    missing = [item for item in before if item not in after]
    return bool(before) and all(isinstance(item, list) and item and item[0] in removed for item in missing)


_SPECIAL: Final = {
    TYPES["Function"]: _function,
    TYPES["Group"]: _group,
    TYPES["Subnet"]: _subnet,
    "aws:s3/bucketObjectv2:BucketObjectv2": _object,
}
"""Types whose change needs more than the names of its inputs."""
