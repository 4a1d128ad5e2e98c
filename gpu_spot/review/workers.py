"""Whose workers end: the table of consequences applied to one environment's preview."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_spot.review import boot_data
from gpu_spot.review.consequences import CONSEQUENCES, Consequence, Severity
from gpu_spot.review.leaves import lines
from gpu_spot.review.preview import UNCHANGED, EngineStep, Preview
from gpu_spot.review.text import code, plural

_GROUP: Final = "gpu-spot:group"
_SIDE: Final = "gpu-spot:side"
_OF_A_GROUP: Final = frozenset({"Group", "LaunchTemplate", "SpotFleetRequest"})
"""Kinds that need no name of their own beside their group's."""

_TOLD_OTHERWISE: Final = frozenset({"description", "tagSpecifications", "tags"})
"""Inputs of a template that repeat what its boot data and group say."""

_FOLLOWING: Final = ("onDemandPrices.", "slots.")
"""Keys of the controller's settings that follow from the types."""

_HARMLESS_REPLACED: Final = frozenset(
    {
        *("BucketObjectv2", "EventTarget", "Parameter", "Permission", "RolePolicy"),
        *("Route", "RouteTable", "RouteTableAssociation"),
    }
)
"""Kinds that no worker notices when they are made anew."""


@dataclass(frozen=True)
class Effect:
    """What one change, or several alike, mean. ``group`` is empty where it concerns the whole stack."""

    severity: Severity
    group: str
    words: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Meaning:
    """What a preview means: effects by severity, the worst first; groups that nothing touches."""

    effects: tuple[Effect, ...]
    untouched: tuple[str, ...]

    @property
    def worst(self) -> Severity:
        """The gravest of all effects."""
        return max((one.severity for one in self.effects), default=Severity.NOTHING)

    def groups(self, severity: Severity) -> tuple[str, ...]:
        """Return the groups with a effect of that severity, by name."""
        return tuple(sorted({one.group for one in self.effects if one.severity is severity and one.group}))


def judge(preview: Preview) -> Meaning:
    """Apply the table to every change of a preview."""
    targets = _targets(preview)
    effects: dict[tuple[Severity, str, str], list[str]] = defaultdict(list)
    for step in preview.changes:
        for effect in _effects(step, targets):
            effects[effect.severity, effect.group, effect.words] += effect.details
    found = [Effect(*key, tuple(dict.fromkeys(details))) for key, details in effects.items()]
    found.sort(key=lambda one: (-one.severity, one.group, one.words))
    touched = {one.group for one in found if one.severity > Severity.NOTHING}
    return Meaning(tuple(found), tuple(sorted(targets.keys() - touched)))


def _effects(step: EngineStep, targets: Mapping[str, int | None]) -> Iterator[Effect]:
    group, inputs = group_of(step), set(step.changed)
    if step.unprotected and step.op not in ("delete", "replace"):
        yield Effect(Severity.WATCH, "", f"{_named(step)}: the engine no longer refuses to delete it")
    if step.op == "create" and step.kind in ("Group", "SpotFleetRequest") and _side(step) == "primary":
        yield Effect(Severity.LATER, group, "a new group, which starts empty")
    if step.kind == "Parameter" and step.op == "update":
        yield from _parameter(step, group)
        return
    matching = [one for one in CONSEQUENCES if _fits(one, step, inputs)]
    for one in matching:
        words = one.words.format(count=_workers(targets.get(group)))
        subject = "" if group and one.kind in _OF_A_GROUP else f"{_named(step)} "
        yield Effect(one.severity, group, subject + words, _details(step, one.inputs))
    if step.op == "replace" and not matching and step.kind not in _HARMLESS_REPLACED:
        by = ", ".join(step.forcing) or "an input that the engine does not name"
        words = f"{_named(step)} is replaced because of {by}: what that means for workers is not known here"
        yield Effect(Severity.WATCH, group, words)


def _fits(one: Consequence, step: EngineStep, inputs: set[str]) -> bool:
    by = set(step.forcing) if step.op == "replace" else inputs
    return (
        one.op == step.op
        and one.kind == step.kind
        and (not one.inputs or bool(one.inputs & by))
        and one.side in ("", _side(step))
    )


def _details(step: EngineStep, inputs: frozenset[str]) -> tuple[str, ...]:
    """Return what changes, in words, where the values say more than the name of the input."""
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
            yield from boot_data.told(str(step.old.get(key, "")), str(step.new.get(key, "")))
        elif key not in _TOLD_OTHERWISE:
            yield from lines(step.old.get(key), step.new.get(key), key)


def _mix(step: EngineStep) -> Iterator[str]:
    one, other = types_of(step.old), types_of(step.new)
    if added := [name for name in other if name not in one]:
        yield f"types added: {code(', '.join(added))}"
    if gone := [name for name in one if name not in other]:
        yield f"types taken out: {code(', '.join(gone))}"
    if sorted(one) == sorted(other) and one != other:
        yield f"types in another order: {code(', '.join(other))}"
    yield from lines(_shares(step.old), _shares(step.new))


def _shares(inputs: Mapping[str, Any]) -> Any:
    return (inputs.get("mixedInstancesPolicy") or {}).get("instancesDistribution") or {}


def _bounds(step: EngineStep, inputs: frozenset[str]) -> Iterator[str]:
    for key in sorted(inputs & set(step.changed)):
        yield from lines(step.old.get(key), step.new.get(key), key)
    if "maxSize" in inputs and (step.new.get("maxSize") or 0) < (step.old.get("maxSize") or 0):
        yield "what still starts above the maximum ends at once, what serves is released one by one"


def types_of(inputs: Mapping[str, Any]) -> list[str]:
    """Return the instance types that an Auto Scaling group lists, in their order."""
    template = (inputs.get("mixedInstancesPolicy") or {}).get("launchTemplate") or {}
    return [one["instanceType"] for one in template.get("overrides") or () if "instanceType" in one]


def _parameter(step: EngineStep, group: str) -> Iterator[Effect]:
    old, new = (_value(one) for one in (step.old, step.new))
    if step.name.endswith("-target"):
        yield from _target(group, old, new)
    elif step.name.endswith("-config"):
        told = tuple(line for line in lines(old, new) if not line.startswith(_FOLLOWING))
        if any(line.startswith("run: ") for line in told):
            words = "another revision: who trains the old one ends it first, the successor runs the new one"
        else:
            words = "other settings: the controller follows within a minute"
        yield Effect(Severity.LATER, group, words, told)


def _target(group: str, old: str, new: str) -> Iterator[Effect]:
    if not (old.isdecimal() and new.isdecimal()):
        yield Effect(Severity.WATCH, group, f"the target changes: {code(old)} → {code(new)}")
    elif (fewer := int(old) - int(new)) > 0:
        words = f"**{_workers(fewer)} are released** one by one: the target is {new}, it was {old}"
        yield Effect(Severity.WATCH, group, words)
    else:
        words = f"{_workers(-fewer)} more: the target is {new}, it was {old}"
        yield Effect(Severity.LATER, group, words)


def group_of(step: EngineStep) -> str:
    """Return the service or job that a resource belongs to by its tag, empty for the stack's own."""
    return _tag(step, _GROUP)


def _side(step: EngineStep) -> str:
    return _tag(step, _SIDE)


def _tag(step: EngineStep, key: str) -> str:
    tags = step.now.get("tags") or {}
    if isinstance(tags, list):  # of an Auto Scaling group
        tags = {one["key"]: one["value"] for one in tags}
    return str(tags.get(key, ""))


def _targets(preview: Preview) -> dict[str, int | None]:
    """Return how many workers each group has by its target before the change; None where nobody knows."""
    found: dict[str, int | None] = {}
    for step in preview.steps:
        if group := group_of(step):
            found.setdefault(group, None)
            if step.kind == "Parameter" and step.name.endswith("-target") and step.op != "create":
                value = _value(step.old or step.new) if step.op not in UNCHANGED else _value(step.now)
                found[group] = int(value) if value.isdecimal() else None
    return found


def _workers(number: int | None) -> str:
    return "all workers" if number is None else plural(number, "worker")


def _value(inputs: Mapping[str, Any]) -> str:
    return str(inputs.get("insecureValue") or inputs.get("value") or "")


def _named(step: EngineStep) -> str:
    return f"{step.kind} {code(step.name)}"
