"""Effects of a changed list of a shared host's tenants."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.effects.effect import Effect, may_end, workers
from gpu_spot.review.preview import EngineStep
from gpu_spot.review.text import code
from gpu_spot.review.values import has_unknown, items, mapping

_Tenants = Mapping[str, Mapping[str, Any]]


def list_effects(step: EngineStep, group: str) -> list[Effect]:
    """Return the effects of a changed list: removed, changed and transferred."""
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
    """Yield how a port, user id or requested GPU passes between tenants.

    The node agent does the same with containers (`steps.reconcile`): a tenant that waits for another one
    starts when that is replaced; of tenants that wait for each other the first by name is stopped first.
    """
    takes = {name: _taken_over(name, old, new) for name in sorted(old.keys() & new.keys())}
    reached = {name: _reached(name, takes) for name in takes}
    described: set[str] = set()
    for name, sources_of in takes.items():
        circle = sorted(peer for peer in reached[name] if name in reached[peer])
        if circle and name not in described:
            described |= {*circle}
            resources = ", ".join(
                sorted({resource for member in circle for resource in takes[member].values()})
            )
            first = code(circle[0])
            words = f"tenants {code(', '.join(circle))} exchange {resources}: {first} is stopped first, "
            yield f"{words}and starts when the others are replaced"
        elif not circle and sources_of:
            sources = ", ".join(
                f"{resource} of {code(peer)}" for peer, resource in sorted(sources_of.items())
            )
            yield f"tenant {code(name)} takes {sources}, and is replaced when that tenant has moved"


def _taken_over(name: str, old: _Tenants, new: _Tenants) -> dict[str, str]:
    """Return the tenants, still listed, that have what a tenant is to have, with a resource of each."""
    needs = _resources(new[name]) - _resources(old[name])
    shared = {peer: needs & _resources(old[peer]) for peer in old.keys() & new.keys() if peer != name}
    return {peer: min(resources) for peer, resources in shared.items() if resources}


def _resources(tenant: Mapping[str, Any]) -> set[str]:
    resources = {f"{key} {tenant[key]}" for key in ("uid", "hostPort") if tenant.get(key) is not None}
    return resources | {f"GPU {gpu}" for gpu in items(tenant.get("gpuIds"))}


def _reached(name: str, takes: Mapping[str, Mapping[str, str]]) -> set[str]:
    reached: set[str] = set()
    following = [*takes[name]]
    while following:
        peer = following.pop()
        if peer not in reached:
            reached.add(peer)
            following += takes[peer]
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
