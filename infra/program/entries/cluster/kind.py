"""Entries on Kubernetes: the cluster, the identities of the pods, and the Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi_aws as aws

from infra.components.cluster import objects as cluster_objects
from infra.components.cluster.eks_cluster import EksCluster, EksClusterArgs
from infra.components.cluster.ingress import ClusterIngress, ClusterIngressArgs
from infra.components.cluster.objects import ClusterEndpoint, ClusterObjects, ClusterObjectsArgs
from infra.components.kubernetes.engines import EnginePolicies, EnginePoliciesArgs
from infra.components.kubernetes.pod_identity import PodIdentity, PodIdentityArgs
from infra.iam import kubernetes_statements
from infra.iam.statement import Statement, grant_key, use_key
from infra.program.entries import checkpoints
from infra.program.entries import needs as entry_needs
from infra.program.entries.cluster import objects
from infra.program.entries.workload import Workload
from infra.program.foundation import Foundation
from infra.schema import Kubernetes, Settings
from infra.scope import Scope
from userdata.agent.aws.permissions import Need


def needs(settings: Settings) -> frozenset[Need]:
    """Return the needs of the entries' queues and secrets, which pods and the queue watcher read."""
    entries = settings.on_kubernetes
    queues = [service.queue for service in entries.services]
    works = [entry_needs.work_needs(entry) for entry in (*entries.services, *entries.training)]
    return frozenset(queue.need for queue in queues if queue is not None).union(
        need for work in works for need, applies in work.items() if applies
    )


def declare(settings: Settings, foundation: Foundation) -> list[Workload]:
    """Declare the AWS resources and the objects of entries on Kubernetes, if there are any.

    For an existing cluster, the output ``kubernetes`` has the IAM policies by controller. The entries have no
    capacity group, so the list is empty.
    """
    entries, kubernetes = settings.on_kubernetes, settings.kubernetes
    if kubernetes is not None and (entries.services or entries.training):
        _declare(settings, kubernetes, foundation)
    return []


def _declare(settings: Settings, kubernetes: Kubernetes, foundation: Foundation) -> None:
    scope, engines = foundation.scope, _engines(settings.on_kubernetes, foundation)
    created = _created_cluster(settings, kubernetes, foundation, engines)
    identities = _pods(settings.on_kubernetes, kubernetes, foundation, created)
    if created is None:
        endpoint = _existing_cluster(kubernetes.cluster, foundation)
        provider, depends_on = cluster_objects.provider(scope, endpoint), endpoint.depends_on
        # The controllers are shared: the operator of the cluster attaches the policies to their roles.
        policies = EnginePolicies(
            scope.name("kubernetes"),
            EnginePoliciesArgs(scope, {**engines, **_disk_engines(scope, settings.on_kubernetes)}),
            scope.child_options,
        )
        scope.export("kubernetes", {"policies": policies.arns})
    else:
        provider, depends_on = created.provider, created.depends_on
    files = foundation.storage.file_system
    paths = {} if files is None else files.paths
    locations = {job.name: checkpoints.stay(job, scope, paths) for job in settings.on_kubernetes.training}
    profile = created.node_profile if created else ""
    manifests = objects.build_objects(settings, foundation, profile, locations)
    # EKS gives credentials to a pod when it is created, and only if its account has an association.
    # Without its files or routes a pod does not end, nor its node: NFS waits for ever (nfs(5), ``hard``).
    before = [*depends_on, *identities, foundation.network, foundation.storage]
    arguments = ClusterObjectsArgs(scope, provider, manifests, before)
    ClusterObjects(scope.name("objects"), arguments, scope.child_options)


def _pods(
    entries: Settings, kubernetes: Kubernetes, foundation: Foundation, created: EksCluster | None
) -> list[PodIdentity]:
    """Declare the identities of pods that use AWS services."""
    scope, identities = foundation.scope, []
    for entry in (*entries.services, *entries.training):
        queue = foundation.queues.get(entry.name)
        if queue is not None or entry.secrets or entry.uses_aws:
            arguments = PodIdentityArgs(
                scope,
                kubernetes.cluster,
                kubernetes.namespace_of(scope.stack),
                entry.name,
                kubernetes_statements.command(scope, entry, queue.access if queue else None),
                policy_arns=entry.policy_arns,
                group=entry.name,
                created_cluster_name=created.created_name if created else None,
            )
            identities.append(PodIdentity(scope.name(entry.name, "pods"), arguments, scope.child_options))
    return identities


def _created_cluster(
    settings: Settings,
    kubernetes: Kubernetes,
    foundation: Foundation,
    engines: Mapping[str, Sequence[Statement]],
) -> EksCluster | None:
    if kubernetes.create is None:
        return None
    args = EksClusterArgs(
        foundation.scope,
        kubernetes,
        kubernetes.create,
        settings.on_kubernetes,
        foundation.network,
        engines,
        settings.log_retention_days,
    )
    return EksCluster(foundation.scope.name("eks"), args, foundation.scope.child_options)


def _existing_cluster(name: str, foundation: Foundation) -> ClusterEndpoint:
    """Look up a cluster; its security group is admitted to the stack's endpoints."""
    scope, network = foundation.scope, foundation.network
    cluster = aws.eks.get_cluster_output(name=name, opts=scope.invoke_options)
    group = cluster.vpc_config.apply(lambda vpc: str(vpc.cluster_security_group_id))
    ingress = ClusterIngress(
        scope.name("cluster-ingress"), ClusterIngressArgs(scope, group, network), scope.child_options
    )
    return ClusterEndpoint(name, cluster.endpoint, cluster.certificate_authorities[0].data, [ingress])


def _disk_engines(scope: Scope, entries: Settings) -> dict[str, Sequence[Statement]]:
    """Return the permissions to use the customer's key for disks, of controllers of an existing cluster."""
    allowed = [*grant_key(scope), *use_key(scope, ["ec2"])]
    if not allowed:
        return {}
    has_datasets = any(entry.datasets for entry in (*entries.services, *entries.training))
    return {"karpenter": allowed, **({"ebs-csi": allowed} if has_datasets else {})}


def _engines(entries: Settings, foundation: Foundation) -> dict[str, Sequence[Statement]]:
    statements: dict[str, Sequence[Statement]] = {}
    if any(service.scaling is not None for service in entries.services):
        statements["keda"] = kubernetes_statements.keda()
    files, points = foundation.storage.file_system, sorted({job.checkpoints for job in entries.training})
    if files is not None and points:
        statements["efs-csi"] = kubernetes_statements.file_system_driver(
            files.arn, [files.access_point_arns[point] for point in points]
        )
    return statements
