"""The Kubernetes objects of entries, rendered with placeholders for names that AWS assigns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pulumi

from infra.components.capacity.launch_template import look_up_snapshot
from infra.components.cluster.objects import KubernetesObject
from infra.components.queues.declared_queue import DeclaredQueue
from infra.kubernetes import render
from infra.kubernetes.context import LABEL_GROUP, ClusterContext, Manifest
from infra.program.foundation import Foundation
from infra.schema import Settings
from infra.scope import Scope

_MARK: Final = "99900{:04}00999"
"""Placeholder for a value that AWS assigns, by its number; digits, because some of the values are numbers."""

ValueKey: TypeAlias = tuple[str, ...]
"""A value's place in ``_render``: its name there, and the entry's if there is one for each."""


def build_objects(
    settings: Settings,
    foundation: Foundation,
    profile: pulumi.Input[str],
    locations: Mapping[str, pulumi.Output[str]],
) -> list[KubernetesObject]:
    """Return the objects. Their number and names do not depend on AWS, but parts of their content do.

    They are rendered with placeholders first. A part depends on the values whose placeholders it has, so a
    value that is not known in a preview makes no other part unknown. ``locations`` are those of the jobs'
    checkpoints by job, which raise for another one: a job's objects depend on it.
    """
    outputs = _assigned_values(settings.on_kubernetes, foundation, profile)
    marks = {key: _MARK.format(number) for number, key in enumerate(outputs)}
    placeholders = _placeholders(settings.on_kubernetes, foundation, marks)
    templates = _render(settings, foundation.scope, placeholders)
    rendered: dict[frozenset[ValueKey], pulumi.Output[list[Manifest]]] = {}

    def checked(index: int, name: str) -> pulumi.Input[Any]:
        location = locations.get(templates[index]["metadata"].get("labels", {}).get(LABEL_GROUP, ""))
        if location is None or templates[index]["kind"] not in ("Job", "TrainJob"):
            return part(index, name)
        return pulumi.Output.all(part(index, name), location).apply(lambda values: values[0])

    def part(index: int, name: str) -> pulumi.Input[Any]:
        text = json.dumps(templates[index][name])
        used = frozenset(key for key, mark in marks.items() if mark in text)
        if not used:
            return templates[index][name]
        if used not in rendered:
            keys = sorted(used)
            assigned = pulumi.Output.all(*(outputs[key] for key in keys)).apply(
                lambda values: {**placeholders, **dict(zip(keys, values, strict=True))}
            )
            rendered[used] = assigned.apply(lambda values: _render(settings, foundation.scope, values))
        return rendered[used].apply(lambda manifests: manifests[index][name])

    return [
        KubernetesObject(
            template,
            {name: checked(index, name) for name in template.keys() - {"apiVersion", "kind", "metadata"}},
        )
        for index, template in enumerate(templates)
    ]


def _assigned_values(
    entries: Settings, foundation: Foundation, profile: pulumi.Input[str]
) -> dict[ValueKey, pulumi.Input[Any]]:
    """Return the values in the objects that AWS assigns."""
    files = foundation.storage.file_system
    values: dict[ValueKey, pulumi.Input[Any]] = {
        ("subnets",): pulumi.Output.all(*foundation.network.subnet_ids.values()),
        ("security_groups",): pulumi.Output.all(*foundation.network.security_group_ids),
    }
    if files is not None:
        values[("file_system",)] = files.id
        values |= {("access_points", name): point for name, point in files.access_point_ids.items()}
    for snapshot in sorted(_snapshots(entries)):
        volume = look_up_snapshot(foundation.scope, snapshot)
        values["snapshot_gib", snapshot] = volume.apply(lambda result: result.volume_size)
    for name, queue in _queues(entries, foundation).items():
        values["queues", name] = queue.for_workers
    if entries.kubernetes is not None and entries.kubernetes.create:
        values[("node_profile",)] = profile
    return values


def _snapshots(entries: Settings) -> set[str]:
    return {
        dataset.snapshot for entry in (*entries.services, *entries.training) for dataset in entry.datasets
    }


def _queues(entries: Settings, foundation: Foundation) -> dict[str, DeclaredQueue]:
    names = [service.name for service in entries.services if service.queue is not None]
    return {name: foundation.queues[name] for name in names}


def _placeholders(
    entries: Settings, foundation: Foundation, marks: Mapping[ValueKey, str]
) -> dict[ValueKey, Any]:
    """Return placeholders for the values of ``_assigned_values``, in their form."""
    queues = _queues(entries, foundation)
    values: dict[ValueKey, Any] = {}
    for key, mark in marks.items():
        if key[0] == "queues":
            values[key] = queues[key[1]].marked_for_workers(mark)
        else:
            values[key] = [mark] if key[0] in ("subnets", "security_groups") else mark
    return values


def _render(settings: Settings, scope: Scope, values: Mapping[ValueKey, Any]) -> list[Manifest]:
    assert settings.kubernetes is not None
    files = settings.storage.file_system

    def of(kind: str) -> dict[str, Any]:
        return {key[1]: value for key, value in values.items() if key[0] == kind and len(key) > 1}

    context = ClusterContext(
        stack=scope.stack,
        region=scope.region,
        cluster=settings.kubernetes,
        users={
            point.name: (point.user_id, point.group_id) for point in (files.access_points if files else ())
        },
        file_system=values.get(("file_system",), ""),
        access_points=of("access_points"),
        snapshot_gib={snapshot: int(size) for snapshot, size in of("snapshot_gib").items()},
        queues=of("queues"),
        subnets=tuple(values[("subnets",)]),
        security_groups=tuple(values[("security_groups",)]),
        node_profile=values.get(("node_profile",), ""),
        kms_key_arn=scope.kms_key_arn or "",
        extra_tags=scope.extra_tags,
    )
    return render.manifests(settings, context)
