"""Effects of changed parameters: what the controller, the scaler and the health checker do with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpu_spot.markdown import code, label
from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.effects.effect import Effect, may_end, workers
from gpu_spot.review.effects.groups import Groups, value_of
from gpu_spot.review.preview import EngineStep
from gpu_spot.review.value_diff import difference_lines, value_differences
from gpu_spot.review.values import has_unknown, is_hidden, mapping, number

_DERIVED_KEYS: Final = ("onDemandPrices.", "ownPrices.", "slots.", "weights.")
"""Keys of the controller's settings that are derived from the instance types."""

_HARMLESS_SETTINGS: Final = frozenset(
    {"base", "drainSeconds", "fallback", "onDemandPrices", "ownPrices", "spotPercentage", "weights", "zones"}
)
"""Settings that the controller applies to later launches; a fallback that goes is a deleted group."""

_OF_OTHERS: Final = frozenset(
    {
        *("agent", "checkpoints", "control", "finished", "prepared", "replacements", "request", "rolling"),
        "run",
    }
)
"""Parameters that Pulumi writes once, or that only instances read that start later; of these by their value
end workers:"""
_STEERING: Final = frozenset({"control", "finished", "replacements", "request", "rolling", "run"})


def parameter_effects(step: EngineStep, group: str, groups: Groups) -> Iterator[Effect]:
    """Yield the effects of a created, changed or deleted parameter of a group."""
    leaf = step.name.rpartition("-")[2]
    if group in groups.new:
        return
    if leaf == "release" and step.op in ("create", "update"):
        yield from _release(step, group, groups)
    elif leaf == "scaling" and _is_dry_run(step):
        yield Effect(Severity.NOTHING, group, "the scaler only logs its decisions")
    elif leaf in ("scaling", "release") or (leaf == "config" and step.op != "update"):
        yield may_end(step, group)
    elif step.op != "update":
        if step.op not in ("create", "import") and leaf not in _OF_OTHERS:
            yield may_end(step, group)
    elif leaf == "target":
        yield from _target(step, group)
    elif leaf == "config":
        yield from _config(step, group, groups)
    elif leaf == "health":
        yield from _health(step, group)
    elif leaf not in _OF_OTHERS - _STEERING and set(step.changed) - {"tags", "tagsAll", "description"}:
        yield may_end(step, group)


def _is_dry_run(step: EngineStep) -> bool:
    """Return whether the scaler sets no target before and after a change."""
    settings = [_settings(inputs) for inputs in (step.old, step.new) if inputs]
    return all(item is not None and item.get("dryRun") is True for item in settings)


def _release(step: EngineStep, group: str, groups: Groups) -> Iterator[Effect]:
    old, new = value_of(step.old), value_of(step.new)
    if step.op == "update" and old == new and not has_unknown(new):
        return
    details = tuple(difference_lines(old, new)) if old and not has_unknown(new) else ()
    forms = {_is_container(old), _is_container(new)} - {None}
    if not old or group in groups.unrestarted or len(forms) > 1:
        # As the health checker decides (``lambdas/core/rollout/step.py``).
        yield Effect(Severity.LATER, group, "new release: only for new instances", details)
        return
    count = groups.targets.get(group)
    words = f"**{workers(count)} restarted** in place, one batch after another: a new release"
    yield Effect(Severity.ENDS, group, words, details, count, ends_all=True)


def _is_container(release: str) -> bool | None:
    """Return whether workers of a release are containers, None if it cannot be read."""
    try:
        return bool(mapping(json.loads(release)).get("image"))
    except ValueError:
        return None


def _target(step: EngineStep, group: str) -> Iterator[Effect]:
    old, new = value_of(step.old), value_of(step.new)
    before, after = number(old), number(new)
    if step.old.get("description") != step.new.get("description"):
        yield may_end(step, group, "counts another unit")
    if before is None or after is None:
        words = f"the target changes: {code(old)} → {code(new)}; whether workers end is not known"
        yield Effect(Severity.UNKNOWN, group, words)
    elif (fewer := before - after) > 0:
        words = f"**{workers(fewer)} removed** one by one: the target changes from {old} to {new}"
        yield Effect(Severity.ENDS, group, words, count=fewer, ends_all=after == 0)
    elif fewer:
        words = f"{workers(-fewer)} added: the target changes from {old} to {new}"
        yield Effect(Severity.LATER, group, words)


def _config(step: EngineStep, group: str, groups: Groups) -> Iterator[Effect]:
    old, new = _settings(step.old), _settings(step.new)
    if old is None or new is None:
        yield may_end(step, group, "is known after the update: the controller's settings may differ")
        return
    details = tuple(line for line in difference_lines(old, new) if not line.startswith(_DERIVED_KEYS))
    if any(line.startswith("run: ") for line in details):
        is_scheduled = old.get("runs") and new.get("runs")
        current = "the current run ends first, then the new revision starts"
        words = f"new revision: {'from the next run on' if is_scheduled else current}"
        yield Effect(Severity.LATER, group, words, details)
    elif old != new:
        # The controller reads this parameter at each of its runs.
        words = "new settings: the controller applies them within a minute"
        yield Effect(Severity.LATER, group, words, details)
    yield from _maximum(old, new, group, groups)
    undetermined = sorted(map(label, _undetermined(old, new)))
    if undetermined:
        yield may_end(step, group, f"changes {', '.join(undetermined)}, by which the controller may end some")


def _maximum(old: Mapping[str, Any], new: Mapping[str, Any], group: str, groups: Groups) -> Iterator[Effect]:
    before, after, target = number(old.get("max")), number(new.get("max")), groups.targets.get(group)
    if before is None or after is None or after >= before:
        return
    if target is None:
        words = "**workers above the new maximum are removed**: how many is not known"
        yield Effect(Severity.ENDS, group, words)
    elif target > after:
        words = f"**{workers(target - after)} removed**: the target is {target}, the maximum becomes {after}"
        yield Effect(Severity.ENDS, group, words, count=target - after)


def _undetermined(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if before == after or key in ("max", "run"):
            continue
        if key == "slots":
            # A type that goes counts as one slot until its last instance ends.
            if any((after or {}).get(name, 1) != slots for name, slots in (before or {}).items()):
                yield key
        elif key == "runs":
            if not (before and after):  # the run of the revision ends, or starts
                yield key
        elif key == "budget":
            if after and (not before or after < before):
                yield key
        elif key not in _HARMLESS_SETTINGS or (
            new.get("kind") != "mixed-asg" and key in ("base", "spotPercentage")
        ):
            yield key


def _settings(inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the controller's settings; None if they are unknown or not JSON."""
    text = value_of(inputs)
    try:
        settings = json.loads(text)
    except ValueError:
        return None
    return settings if isinstance(settings, dict) and not is_hidden(text) else None


def _health(step: EngineStep, group: str) -> Iterator[Effect]:
    old, new = value_of(step.old), value_of(step.new)
    differences = list(value_differences(old, new))
    if has_unknown(new) or any(
        key in ("graceSeconds", "stuckSeconds") and (number(after) or 0) < (number(before) or 0)
        for key, before, after in differences
    ):
        yield may_end(step, group, "judges workers more strictly: the health checker may replace some")
    elif differences:
        words = "new settings of the health checker"
        yield Effect(Severity.LATER, group, words, tuple(difference_lines(old, new)))
