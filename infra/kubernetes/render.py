"""Manifests of a stack's entries on Kubernetes, in the order in which they can be applied."""

from __future__ import annotations

from infra.kubernetes import deletion_cost, jobs, nodes, services, storage
from infra.kubernetes.context import ClusterContext, Manifest
from infra.schema import Service, Settings, Training


def manifests(settings: Settings, context: ClusterContext) -> list[Manifest]:
    """Return the manifests of all entries with ``runsOn: kubernetes``."""
    on_pods = settings.on_kubernetes
    entries: tuple[Service | Training, ...] = (*on_pods.services, *on_pods.training)
    if not entries:
        return []
    return [
        _namespace(context),
        *(item for entry in entries for item in nodes.node_pool(entry, context)),
        *nodes.queues(on_pods.training, context),
        *storage.checkpoints(on_pods.training, context),
        *storage.datasets(entries, context),
        *deletion_cost.policy(on_pods.services, context),
        *(item for service in on_pods.services for item in services.service_manifests(service, context)),
        *(item for job in on_pods.training for item in jobs.job_manifests(job, context)),
    ]


def _namespace(context: ClusterContext) -> Manifest:
    # Baseline, not restricted: a service's image chooses its own user. Jobs do not run as root.
    labels = {**context.labels(), "pod-security.kubernetes.io/enforce": "baseline"}
    metadata = {**context.metadata(context.namespace, in_cluster=True), "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
