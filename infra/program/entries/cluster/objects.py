"""The objects of entries on Kubernetes, as resources: rendered here, filled in where AWS names a part."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pulumi

from infra.components.capacity.launch_template import usable_snapshot
from infra.components.cluster.objects import DrawnObject
from infra.components.queues.declared_queue import DeclaredQueue
from infra.kubernetes import render
from infra.kubernetes.place import ClusterPlace, Object
from infra.program.foundation import Foundation
from infra.schema import Settings
from infra.scope import Scope

_MARK: Final = "9990000999"
"""Stands where AWS's answer will: digits, for there are numbers among them."""


def drawn(settings: Settings, foundation: Foundation, profile: pulumi.Input[str]) -> list[DrawnObject]:
    """Return the objects. Which there are, and their names, is known without AWS, not all that they hold.

    They are drawn with a mark in the place of all that AWS names: what has none is known in a preview.
    """
    sketches = _rendered(settings, foundation.scope, _marked(settings.on_kubernetes, foundation))
    named = _named(settings.on_kubernetes, foundation, profile)
    known = named.apply(lambda named: _rendered(settings, foundation.scope, named))
    found = []
    for number, sketch in enumerate(sketches):
        body: dict[str, pulumi.Input[Any]] = {}
        for key in sketch.keys() - {"apiVersion", "kind", "metadata"}:
            marked = _MARK in json.dumps(sketch[key])
            body[key] = known.apply(partial(_part, number, key)) if marked else sketch[key]
        found.append(DrawnObject(sketch, body))
    return found


def _part(number: int, key: str, items: Sequence[Object]) -> Any:
    return items[number][key]


def _named(
    there: Settings, foundation: Foundation, profile: pulumi.Input[str]
) -> pulumi.Output[dict[str, Any]]:
    """Return what AWS names of all that stands in the objects."""
    files = foundation.storage.file_system
    snapshots = {one.snapshot for entry in (*there.services, *there.training) for one in entry.datasets}
    return pulumi.Output.all(
        file_system=files.id if files is not None else "",
        access_points=files.access_point_ids if files is not None else {},
        snapshot_gib={
            one: usable_snapshot(foundation.scope, one).apply(lambda found: found.volume_size)
            for one in snapshots
        },
        queues={name: queue.for_workers for name, queue in _queues(there, foundation).items()},
        subnets=list(foundation.network.subnet_ids.values()),
        security_groups=foundation.network.security_group_ids,
        node_profile=profile,
    )


def _queues(there: Settings, foundation: Foundation) -> dict[str, DeclaredQueue]:
    return {one.name: foundation.queues[one.name] for one in there.services if one.queue is not None}


def _marked(there: Settings, foundation: Foundation) -> dict[str, Any]:
    """Return marks for what ``_named`` will know."""
    files = foundation.storage.file_system
    queues = {name: queue.marked_for_workers(_MARK) for name, queue in _queues(there, foundation).items()}
    snapshots = {one.snapshot for entry in (*there.services, *there.training) for one in entry.datasets}
    return {
        "file_system": _MARK,
        "access_points": dict.fromkeys(files.access_point_ids, _MARK) if files is not None else {},
        "snapshot_gib": dict.fromkeys(snapshots, int(_MARK)),
        "queues": queues,
        "subnets": [_MARK],
        "security_groups": [_MARK],
        "node_profile": _MARK if there.kubernetes is not None and there.kubernetes.own else "",
    }


def _rendered(settings: Settings, scope: Scope, named: dict[str, Any]) -> list[Object]:
    assert settings.kubernetes is not None
    files = settings.storage.file_system
    place = ClusterPlace(
        stack=scope.stack,
        region=scope.region,
        cluster=settings.kubernetes,
        users={one.name: (one.user_id, one.group_id) for one in (files.access_points if files else ())},
        file_system=named["file_system"],
        access_points=named["access_points"],
        snapshot_gib={one: int(size) for one, size in named["snapshot_gib"].items()},
        queues=named["queues"],
        subnets=tuple(named["subnets"]),
        security_groups=tuple(named["security_groups"]),
        node_profile=named["node_profile"],
    )
    return render.objects(settings, place)
