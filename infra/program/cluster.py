"""The entries on Kubernetes: who their pods are, and the objects that the cluster is given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from infra.agent_config import Known
from infra.components.capacity.launch_template import usable_snapshot
from infra.components.cluster import objects
from infra.components.cluster.eks_cluster import OwnClusterArgs, OwnEksCluster
from infra.components.cluster.objects import ClusterObjects, ClusterObjectsArgs, DrawnObject, Reached
from infra.components.kubernetes.engines import EnginePolicies, EnginePoliciesArgs
from infra.components.kubernetes.pod_identity import PodIdentity, PodIdentityArgs
from infra.components.network.network import Network
from infra.components.queue.sqs import Sqs
from infra.components.storage.storage import Storage
from infra.iam import kubernetes_statements
from infra.iam.statement import Statement
from infra.kubernetes import render
from infra.kubernetes.place import ClusterPlace, Object
from infra.schema import Kubernetes, Settings
from infra.scope import Scope

_MARK: Final = "9990000999"
"""Stands where AWS's answer will: digits, for there are numbers among them."""


@dataclass(frozen=True)
class Neighbourhood:
    """What the entries share with those on instances; ``queues`` are secrets' names, both by service."""

    scope: Scope
    network: Network
    storage: Storage
    queues: Mapping[str, pulumi.Input[str]]
    sqs: Mapping[str, Sqs]


def declare(settings: Settings, beside: Neighbourhood) -> None:
    """Declare what entries on Kubernetes need of AWS, and their objects; nothing without any.

    For a cluster that is there ``kubernetes`` is exported: ``policies``, by the engine whose role needs each.
    """
    there = settings.on_kubernetes
    if settings.kubernetes is None or not (there.services or there.training):
        return
    allowed = _engines(there, beside)
    own = _own(settings, settings.kubernetes, beside, allowed)
    for service in there.services:
        secret, sqs = beside.queues.get(service.name), beside.sqs.get(service.name)
        if statements := kubernetes_statements.worker(beside.scope, secret, sqs.arns if sqs else None):
            PodIdentity(
                beside.scope.name(service.name, "pods"),
                PodIdentityArgs(
                    beside.scope,
                    settings.kubernetes.cluster,
                    settings.kubernetes.namespace,
                    service.name,
                    statements,
                    group=service.name,
                    made=own.made if own else None,
                ),
                beside.scope.below,
            )
    if own is None:
        reached = _found(settings.kubernetes.cluster, beside.scope)
        provider, ready = objects.provider(beside.scope, reached), reached.ready
        # Its engines are shared, and whoever runs it attaches what they need.
        engines = EnginePolicies(
            beside.scope.name("kubernetes"), EnginePoliciesArgs(beside.scope, allowed), beside.scope.below
        )
        beside.scope.export("kubernetes", {"policies": engines.arns})
    else:
        provider, ready = own.provider, own.ready
    declared = _declared(settings, beside, own.node_profile if own else "")
    ClusterObjects(
        beside.scope.name("objects"),
        ClusterObjectsArgs(beside.scope, provider, declared, ready),
        beside.scope.below,
    )


def _own(
    settings: Settings,
    kubernetes: Kubernetes,
    beside: Neighbourhood,
    engines: Mapping[str, Sequence[Statement]],
) -> OwnEksCluster | None:
    if kubernetes.own is None:
        return None
    args = OwnClusterArgs(
        beside.scope,
        kubernetes,
        kubernetes.own,
        settings.on_kubernetes,
        beside.network,
        engines,
        settings.log_retention_days,
    )
    return OwnEksCluster(beside.scope.name("eks"), args, beside.scope.below)


def _found(name: str, scope: Scope) -> Reached:
    cluster = aws.eks.get_cluster_output(name=name, opts=scope.asking)
    return Reached(name, cluster.endpoint, cluster.certificate_authorities[0].data)


def _declared(settings: Settings, beside: Neighbourhood, profile: pulumi.Input[str]) -> list[DrawnObject]:
    """Return the objects. Which there are, and their names, is known without AWS, not all that they hold.

    They are drawn with a mark in the place of all that AWS names: what has none is known in a preview.
    """
    sketches = _rendered(settings, beside.scope, _marked(settings.on_kubernetes, beside))
    told = _told(settings.on_kubernetes, beside, profile)
    known = told.apply(lambda told: _rendered(settings, beside.scope, told))
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


def _engines(there: Settings, beside: Neighbourhood) -> dict[str, Sequence[Statement]]:
    found: dict[str, Sequence[Statement]] = {}
    scaled = [service.name for service in there.services if service.scaling is not None]
    secrets = [beside.queues[name] for name in scaled if name in beside.queues]
    queues = [beside.sqs[name].arns.queue for name in scaled if name in beside.sqs]
    if secrets or queues:
        found["keda"] = kubernetes_statements.keda(beside.scope, secrets, queues)
    files, points = beside.storage.file_system, sorted({job.checkpoints for job in there.training})
    if files is not None and points:
        found["efs-csi"] = kubernetes_statements.file_system_driver(
            files.arn, [files.access_point_arns[point] for point in points]
        )
    return found


def _told(
    there: Settings, beside: Neighbourhood, profile: pulumi.Input[str]
) -> pulumi.Output[dict[str, Any]]:
    """Return what AWS names of all that stands in the objects."""
    files = beside.storage.file_system
    snapshots = {one.snapshot for entry in (*there.services, *there.training) for one in entry.datasets}
    known: dict[str, dict[str, pulumi.Input[str]]] = {}
    for service in there.services:
        known[service.name] = {"registry_table": ""}
        if (secret := beside.queues.get(service.name)) is not None:
            known[service.name]["queue_secret"] = secret
        if (sqs := beside.sqs.get(service.name)) is not None:
            known[service.name] |= {"queue_url": sqs.url, "queue_name": sqs.name}
    return pulumi.Output.all(
        file_system=files.id if files is not None else "",
        access_points=files.access_point_ids if files is not None else {},
        snapshot_gib={
            one: usable_snapshot(beside.scope, one).apply(lambda found: found.volume_size)
            for one in snapshots
        },
        queues=known,
        subnets=list(beside.network.subnet_ids.values()),
        security_groups=beside.network.security_group_ids,
        node_profile=profile,
    )


def _marked(there: Settings, beside: Neighbourhood) -> dict[str, Any]:
    """Return marks for what ``_told`` will know."""
    files = beside.storage.file_system
    queues: dict[str, dict[str, str]] = {}
    for service in there.services:
        queues[service.name] = {"registry_table": ""}
        if service.name in beside.queues:
            queues[service.name]["queue_secret"] = _MARK
        if service.name in beside.sqs:
            queues[service.name] |= {"queue_url": _MARK, "queue_name": _MARK}
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


def _rendered(settings: Settings, scope: Scope, told: dict[str, Any]) -> list[Object]:
    assert settings.kubernetes is not None
    files = settings.storage.file_system
    place = ClusterPlace(
        stack=scope.stack,
        region=scope.region,
        cluster=settings.kubernetes,
        users={one.name: (one.user_id, one.group_id) for one in (files.access_points if files else ())},
        file_system=told["file_system"],
        access_points=told["access_points"],
        snapshot_gib={one: int(size) for one, size in told["snapshot_gib"].items()},
        queues={name: _known(one) for name, one in told["queues"].items()},
        subnets=tuple(told["subnets"]),
        security_groups=tuple(told["security_groups"]),
        node_profile=told["node_profile"],
    )
    return render.objects(settings, place)


def _known(told: Mapping[str, str]) -> Known:
    return Known(**{one.name: told[one.name] for one in fields(Known) if one.name in told})
