"""Entries on Kubernetes: who their pods are, and the objects that the cluster is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi_aws as aws

from infra.components.cluster import objects as cluster_objects
from infra.components.cluster.eks_cluster import OwnClusterArgs, OwnEksCluster
from infra.components.cluster.objects import ClusterObjects, ClusterObjectsArgs, Reached
from infra.components.kubernetes.engines import EnginePolicies, EnginePoliciesArgs
from infra.components.kubernetes.pod_identity import PodIdentity, PodIdentityArgs
from infra.iam import kubernetes_statements
from infra.iam.statement import Statement
from infra.program.entries.cluster import objects
from infra.program.entries.workload import Workload
from infra.program.foundation import Foundation
from infra.schema import Kubernetes, Settings
from infra.scope import Scope
from userdata.agent.aws.permissions import Need


def needs(settings: Settings) -> frozenset[Need]:
    """Return nothing: what pods are there for, no instance of a group is."""
    return frozenset()


def declare(settings: Settings, foundation: Foundation) -> list[Workload]:
    """Declare what entries on Kubernetes need of AWS, and their objects; nothing without any.

    For a cluster that is there ``kubernetes`` is exported: ``policies``, by the engine whose role needs each.
    None of them is on a capacity group.
    """
    there, kubernetes = settings.on_kubernetes, settings.kubernetes
    if kubernetes is not None and (there.services or there.training):
        _declare(settings, kubernetes, foundation)
    return []


def _declare(settings: Settings, kubernetes: Kubernetes, foundation: Foundation) -> None:
    scope, engines = foundation.scope, _engines(settings.on_kubernetes, foundation)
    own = _own(settings, kubernetes, foundation, engines)
    _pods(settings.on_kubernetes, kubernetes, foundation, own)
    if own is None:
        reached = _found(kubernetes.cluster, scope)
        provider, ready = cluster_objects.provider(scope, reached), reached.ready
        # Its engines are shared, and whoever runs it attaches what they need.
        policies = EnginePolicies(scope.name("kubernetes"), EnginePoliciesArgs(scope, engines), scope.below)
        scope.export("kubernetes", {"policies": policies.arns})
    else:
        provider, ready = own.provider, own.ready
    drawn = objects.drawn(settings, foundation, own.node_profile if own else "")
    ClusterObjects(scope.name("objects"), ClusterObjectsArgs(scope, provider, drawn, ready), scope.below)


def _pods(there: Settings, kubernetes: Kubernetes, foundation: Foundation, own: OwnEksCluster | None) -> None:
    """Declare who the pods of services are that ask AWS for something."""
    scope, queues = foundation.scope, foundation.queues
    for service in there.services:
        if (queue := queues.get(service.name)) is not None:
            PodIdentity(
                scope.name(service.name, "pods"),
                PodIdentityArgs(
                    scope,
                    kubernetes.cluster,
                    kubernetes.namespace,
                    service.name,
                    kubernetes_statements.worker(scope, queue.access),
                    group=service.name,
                    made=own.made if own else None,
                ),
                scope.below,
            )


def _own(
    settings: Settings,
    kubernetes: Kubernetes,
    foundation: Foundation,
    engines: Mapping[str, Sequence[Statement]],
) -> OwnEksCluster | None:
    if kubernetes.own is None:
        return None
    args = OwnClusterArgs(
        foundation.scope,
        kubernetes,
        kubernetes.own,
        settings.on_kubernetes,
        foundation.network,
        engines,
        settings.log_retention_days,
    )
    return OwnEksCluster(foundation.scope.name("eks"), args, foundation.scope.below)


def _found(name: str, scope: Scope) -> Reached:
    cluster = aws.eks.get_cluster_output(name=name, opts=scope.asking)
    return Reached(name, cluster.endpoint, cluster.certificate_authorities[0].data)


def _engines(there: Settings, foundation: Foundation) -> dict[str, Sequence[Statement]]:
    found: dict[str, Sequence[Statement]] = {}
    # A service that scales has a queue.
    counted = [foundation.queues[one.name].access for one in there.services if one.scaling is not None]
    if counted:
        found["keda"] = kubernetes_statements.keda(foundation.scope, counted)
    files, points = foundation.storage.file_system, sorted({job.checkpoints for job in there.training})
    if files is not None and points:
        found["efs-csi"] = kubernetes_statements.file_system_driver(
            files.arn, [files.access_point_arns[point] for point in points]
        )
    return found
