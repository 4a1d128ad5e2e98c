"""The Kubernetes objects of entries, rendered with placeholders for names that AWS assigns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pulumi

from infra.components.capacity.launch_template import look_up_snapshot
from infra.components.cluster.objects import KubernetesObject
from infra.components.queues.declared_queue import DeclaredQueue
from infra.kubernetes import render
from infra.kubernetes.context import ClusterContext, Manifest
from infra.program.foundation import Foundation
from infra.schema import Settings
from infra.scope import Scope

_MARK: Final = "9990000999"
"""Placeholder for a value that AWS assigns; digits, because some of the values are numbers."""


def build_objects(
    settings: Settings, foundation: Foundation, profile: pulumi.Input[str]
) -> list[KubernetesObject]:
    """Return the objects. Their number and names do not depend on AWS, but parts of their content do.

    They are rendered with placeholders first: content without a placeholder is known in a preview.
    """
    templates = _render(settings, foundation.scope, _placeholders(settings.on_kubernetes, foundation))
    values = _assigned_values(settings.on_kubernetes, foundation, profile)
    manifests = values.apply(lambda values: _render(settings, foundation.scope, values))
    objects = []
    for index, template in enumerate(templates):
        body: dict[str, pulumi.Input[Any]] = {}
        for key in template.keys() - {"apiVersion", "kind", "metadata"}:
            has_placeholder = _MARK in json.dumps(template[key])
            body[key] = manifests.apply(partial(_part, index, key)) if has_placeholder else template[key]
        objects.append(KubernetesObject(template, body))
    return objects


def _part(index: int, key: str, manifests: Sequence[Manifest]) -> Any:
    return manifests[index][key]


def _assigned_values(
    entries: Settings, foundation: Foundation, profile: pulumi.Input[str]
) -> pulumi.Output[dict[str, Any]]:
    """Return the values in the objects that AWS assigns."""
    files = foundation.storage.file_system
    return pulumi.Output.all(
        file_system=files.id if files is not None else "",
        access_points=files.access_point_ids if files is not None else {},
        snapshot_gib={
            snapshot: look_up_snapshot(foundation.scope, snapshot).apply(lambda result: result.volume_size)
            for snapshot in _snapshots(entries)
        },
        queues={name: queue.for_workers for name, queue in _queues(entries, foundation).items()},
        subnets=list(foundation.network.subnet_ids.values()),
        security_groups=foundation.network.security_group_ids,
        node_profile=profile,
    )


def _snapshots(entries: Settings) -> set[str]:
    return {
        dataset.snapshot for entry in (*entries.services, *entries.training) for dataset in entry.datasets
    }


def _queues(entries: Settings, foundation: Foundation) -> dict[str, DeclaredQueue]:
    names = [service.name for service in entries.services if service.queue is not None]
    return {name: foundation.queues[name] for name in names}


def _placeholders(entries: Settings, foundation: Foundation) -> dict[str, Any]:
    """Return placeholders for the values of ``_assigned_values``."""
    files = foundation.storage.file_system
    queues = {name: queue.marked_for_workers(_MARK) for name, queue in _queues(entries, foundation).items()}
    return {
        "file_system": _MARK,
        "access_points": dict.fromkeys(files.access_point_ids, _MARK) if files is not None else {},
        "snapshot_gib": dict.fromkeys(_snapshots(entries), int(_MARK)),
        "queues": queues,
        "subnets": [_MARK],
        "security_groups": [_MARK],
        "node_profile": _MARK if entries.kubernetes is not None and entries.kubernetes.create else "",
    }


def _render(settings: Settings, scope: Scope, values: dict[str, Any]) -> list[Manifest]:
    assert settings.kubernetes is not None
    files = settings.storage.file_system
    context = ClusterContext(
        stack=scope.stack,
        region=scope.region,
        cluster=settings.kubernetes,
        users={
            point.name: (point.user_id, point.group_id) for point in (files.access_points if files else ())
        },
        file_system=values["file_system"],
        access_points=values["access_points"],
        snapshot_gib={snapshot: int(size) for snapshot, size in values["snapshot_gib"].items()},
        queues=values["queues"],
        subnets=tuple(values["subnets"]),
        security_groups=tuple(values["security_groups"]),
        node_profile=values["node_profile"],
    )
    return render.manifests(settings, context)
