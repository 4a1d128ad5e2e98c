"""Effects of a preview on workers: the table of consequences applied to its steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_spot.review import boot_data
from gpu_spot.review.consequences import CONSEQUENCES, Consequence, Severity
from gpu_spot.review.preview import UNCHANGED, EngineStep, Preview
from gpu_spot.review.text import code, plural
from gpu_spot.review.value_diff import difference_lines

_GROUP: Final = "gpu-spot:group"
_GROUP_ROLE: Final = "gpu-spot:side"
_GROUP_KINDS: Final = frozenset({"Group", "LaunchTemplate", "SpotFleetRequest"})
"""Kinds that are named by their group alone."""

_REDUNDANT_INPUTS: Final = frozenset({"description", "tagSpecifications", "tags"})
"""Inputs of a launch template that repeat its boot data and group."""

_DERIVED_KEYS: Final = ("onDemandPrices.", "slots.")
"""Keys of the controller's settings that are derived from the instance types."""

_HARMLESS_REPLACEMENTS: Final = frozenset(
    {
        *("BucketObjectv2", "EventTarget", "Parameter", "Permission", "RolePolicy"),
        *("Route", "RouteTable", "RouteTableAssociation"),
    }
)
"""Kinds whose replacement does not affect workers."""


@dataclass(frozen=True)
class Effect:
    """The effect of one or several similar changes. ``group`` is empty if it concerns the whole stack."""

    severity: Severity
    group: str
    words: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Meaning:
    """The effects of a preview, most severe first, and the groups that are not affected."""

    effects: tuple[Effect, ...]
    untouched: tuple[str, ...]

    @property
    def worst(self) -> Severity:
        """The highest severity of all effects."""
        return max((effect.severity for effect in self.effects), default=Severity.NOTHING)

    def groups(self, severity: Severity) -> tuple[str, ...]:
        """Return the groups with an effect of a severity, sorted by name."""
        return tuple(
            sorted({effect.group for effect in self.effects if effect.severity is severity and effect.group})
        )


def assess_preview(preview: Preview) -> Meaning:
    """Apply the table of consequences to every change of a preview."""
    targets = _targets(preview)
    details_by_effect: dict[tuple[Severity, str, str], list[str]] = defaultdict(list)
    for step in preview.changes:
        for effect in _effects(step, targets):
            details_by_effect[effect.severity, effect.group, effect.words] += effect.details
    effects = [Effect(*key, tuple(dict.fromkeys(details))) for key, details in details_by_effect.items()]
    effects.sort(key=lambda effect: (-effect.severity, effect.group, effect.words))
    touched = {effect.group for effect in effects if effect.severity > Severity.NOTHING}
    return Meaning(tuple(effects), tuple(sorted(targets.keys() - touched)))


def _effects(step: EngineStep, targets: Mapping[str, int | None]) -> Iterator[Effect]:
    group, inputs = group_of(step), set(step.changed)
    if step.unprotected and step.op not in ("delete", "replace"):
        yield Effect(Severity.WATCH, "", f"{_named(step)}: deletion protection is removed")
    if step.op == "create" and step.kind in ("Group", "SpotFleetRequest") and _group_role(step) == "primary":
        yield Effect(Severity.LATER, group, "new group, which starts empty")
    if step.kind == "Parameter" and step.op == "update":
        yield from _parameter(step, group)
        return
    matching = [consequence for consequence in CONSEQUENCES if _fits(consequence, step, inputs)]
    for consequence in matching:
        words = consequence.words.format(count=_workers(targets.get(group)))
        subject = "" if group and consequence.kind in _GROUP_KINDS else f"{_named(step)} "
        yield Effect(consequence.severity, group, subject + words, _details(step, consequence.inputs))
    if step.op == "replace" and not matching and step.kind not in _HARMLESS_REPLACEMENTS:
        by = ", ".join(step.forcing) or "an input that the engine does not report"
        words = f"{_named(step)} is replaced because of {by}: the effect on workers is unknown"
        yield Effect(Severity.WATCH, group, words)


def _fits(consequence: Consequence, step: EngineStep, inputs: set[str]) -> bool:
    by = set(step.forcing) if step.op == "replace" else inputs
    return (
        consequence.op == step.op
        and consequence.kind == step.kind
        and (not consequence.inputs or bool(consequence.inputs & by))
        and consequence.group_role in ("", _group_role(step))
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
    old_types, new_types = types_of(step.old), types_of(step.new)
    if added := [name for name in new_types if name not in old_types]:
        yield f"types added: {code(', '.join(added))}"
    if removed := [name for name in old_types if name not in new_types]:
        yield f"types removed: {code(', '.join(removed))}"
    if sorted(old_types) == sorted(new_types) and old_types != new_types:
        yield f"new order of types: {code(', '.join(new_types))}"
    yield from difference_lines(_shares(step.old), _shares(step.new))


def _shares(inputs: Mapping[str, Any]) -> Any:
    return (inputs.get("mixedInstancesPolicy") or {}).get("instancesDistribution") or {}


def _bounds(step: EngineStep, inputs: frozenset[str]) -> Iterator[str]:
    for key in sorted(inputs & set(step.changed)):
        yield from difference_lines(step.old.get(key), step.new.get(key), key)
    if "maxSize" in inputs and (step.new.get("maxSize") or 0) < (step.old.get("maxSize") or 0):
        yield "instances above the maximum are terminated: at once if they are starting, else one by one"


def types_of(inputs: Mapping[str, Any]) -> list[str]:
    """Return the instance types of an Auto Scaling group, in order."""
    template = (inputs.get("mixedInstancesPolicy") or {}).get("launchTemplate") or {}
    return [
        override["instanceType"] for override in template.get("overrides") or () if "instanceType" in override
    ]


def _parameter(step: EngineStep, group: str) -> Iterator[Effect]:
    old, new = (_value(inputs) for inputs in (step.old, step.new))
    if step.name.endswith("-target"):
        yield from _target(group, old, new)
    elif step.name.endswith("-config"):
        details = tuple(line for line in difference_lines(old, new) if not line.startswith(_DERIVED_KEYS))
        if any(line.startswith("run: ") for line in details):
            words = "new revision: the current run ends first, then the new revision starts"
        else:
            words = "new settings: the controller applies them within a minute"
        yield Effect(Severity.LATER, group, words, details)


def _target(group: str, old: str, new: str) -> Iterator[Effect]:
    if not (old.isdecimal() and new.isdecimal()):
        yield Effect(Severity.WATCH, group, f"the target changes: {code(old)} → {code(new)}")
    elif (fewer := int(old) - int(new)) > 0:
        words = f"**{_workers(fewer)} removed** one by one: the target changes from {old} to {new}"
        yield Effect(Severity.WATCH, group, words)
    else:
        words = f"{_workers(-fewer)} added: the target changes from {old} to {new}"
        yield Effect(Severity.LATER, group, words)


def group_of(step: EngineStep) -> str:
    """Return the service or job of a resource from its tag, empty for a resource of the stack."""
    return _tag(step, _GROUP)


def _group_role(step: EngineStep) -> str:
    return _tag(step, _GROUP_ROLE)


def _tag(step: EngineStep, key: str) -> str:
    tags = step.now.get("tags") or {}
    if isinstance(tags, list):  # of an Auto Scaling group
        tags = {tag["key"]: tag["value"] for tag in tags}
    return str(tags.get(key, ""))


def _targets(preview: Preview) -> dict[str, int | None]:
    """Return each group's target before the change; None if it is unknown."""
    targets: dict[str, int | None] = {}
    for step in preview.steps:
        if group := group_of(step):
            targets.setdefault(group, None)
            if step.kind == "Parameter" and step.name.endswith("-target") and step.op != "create":
                value = _value(step.old or step.new) if step.op not in UNCHANGED else _value(step.now)
                targets[group] = int(value) if value.isdecimal() else None
    return targets


def _workers(number: int | None) -> str:
    return "all workers" if number is None else plural(number, "worker")


def _value(inputs: Mapping[str, Any]) -> str:
    return str(inputs.get("insecureValue") or inputs.get("value") or "")


def _named(step: EngineStep) -> str:
    return f"{step.kind} {code(step.name)}"
