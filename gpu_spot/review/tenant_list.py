"""Effects of a changed list of a shared host's tenants."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpu_spot.review.consequences import Severity
from gpu_spot.review.effect import Effect, may_end, workers
from gpu_spot.review.preview import EngineStep
from gpu_spot.review.text import code
from gpu_spot.review.values import has_unknown, items, mapping

_Tenants = Mapping[str, Mapping[str, Any]]


def list_effects(step: EngineStep, group: str) -> list[Effect]:
    """Return the effects of a changed list: removed tenants, changed ones, and what passes between them."""
    old, new = (_tenants(inputs.get("content")) for inputs in (step.old, step.new))
    if old is None or new is None:
        return [may_end(step, group, "is known after the update: tenants may change")]
    effects = []
    if removed := sorted(old.keys() - new.keys()):
        words = f"**{workers(len(removed))} ended**: tenants {code(', '.join(removed))} are removed"
        effects.append(Effect(Severity.ENDS, group, words, count=len(removed)))
    if changed := sorted(name for name in old.keys() & new.keys() if old[name] != new[name]):
        words = f"changes tenants {code(', '.join(changed))}, whose containers may be replaced"
        effects.append(may_end(step, group, words))
    return [*effects, *(Effect(Severity.ENDS, group, words) for words in _transfers(old, new))]


def _transfers(old: _Tenants, new: _Tenants) -> Iterator[str]:
    """Yield how a port, user id or requested GPU passes from one tenant to another.

    The node agent does the same with containers (`steps.reconcile`): a tenant that waits for another one
    starts when that is replaced; of tenants that wait for each other the first by name is stopped first.
    """
    takes = {name: _taken(name, old, new) for name in sorted(old.keys() & new.keys())}
    reached = {name: _reached(name, takes) for name in takes}
    described: set[str] = set()
    for name, taken in takes.items():
        circle = sorted(other for other in reached[name] if name in reached[other])
        if circle and name not in described:
            described |= {*circle}
            what = ", ".join(sorted({resource for one in circle for resource in takes[one].values()}))
            words = f"tenants {code(', '.join(circle))} exchange {what}: {code(circle[0])} is stopped first, "
            yield f"{words}and starts when the others are replaced"
        elif not circle and taken:
            sources = ", ".join(f"{resource} of {code(other)}" for other, resource in sorted(taken.items()))
            yield f"tenant {code(name)} takes {sources}, and is replaced when that tenant has moved"


def _taken(name: str, old: _Tenants, new: _Tenants) -> dict[str, str]:
    """Return the other tenants, still listed, that now have what a tenant will have, and what it is."""
    needs = _resources(new[name]) - _resources(old[name])
    shared = {other: needs & _resources(old[other]) for other in old.keys() & new.keys() if other != name}
    return {other: min(resources) for other, resources in shared.items() if resources}


def _resources(tenant: Mapping[str, Any]) -> set[str]:
    resources = {f"{key} {tenant[key]}" for key in ("uid", "hostPort") if tenant.get(key) is not None}
    return resources | {f"GPU {gpu}" for gpu in items(tenant.get("gpuIds"))}


def _reached(name: str, takes: Mapping[str, Mapping[str, str]]) -> set[str]:
    reached: set[str] = set()
    following = [*takes[name]]
    while following:
        other = following.pop()
        if other not in reached:
            reached.add(other)
            following += takes[other]
    return reached


def _tenants(text: Any) -> _Tenants | None:
    try:
        content = json.loads(text)
    except (TypeError, ValueError):
        return None
    listed = content.get("tenants") if isinstance(content, dict) else content
    if has_unknown(content) or not isinstance(listed, list):
        return None
    return {str(mapping(tenant).get("name")): mapping(tenant) for tenant in listed}
