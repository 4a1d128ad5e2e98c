"""Manifests of a stack's entries on Kubernetes, in the order in which they can be applied."""

from __future__ import annotations

from infra.kubernetes import deletion_cost, jobs, nodes, services, storage
from infra.kubernetes.context import ClusterContext, Manifest
from infra.schema import Service, Settings, Training


def manifests(settings: Settings, context: ClusterContext) -> list[Manifest]:
    """Return the manifests of all entries with ``runsOn: kubernetes``."""
    entries_on_kubernetes = settings.on_kubernetes
    entries: tuple[Service | Training, ...] = (
        *entries_on_kubernetes.services,
        *entries_on_kubernetes.training,
    )
    if not entries:
        return []
    return [
        _namespace(context),
        *(manifest for entry in entries for manifest in nodes.node_pool(entry, context)),
        *nodes.queues(entries_on_kubernetes.training, context),
        *storage.checkpoints(entries_on_kubernetes.training, context),
        *storage.datasets(entries, context),
        *deletion_cost.policy(entries_on_kubernetes.services, context),
        *(
            manifest
            for service in entries_on_kubernetes.services
            for manifest in services.service_manifests(service, context)
        ),
        *(
            manifest
            for job in entries_on_kubernetes.training
            for manifest in jobs.job_manifests(job, context)
        ),
    ]


def _namespace(context: ClusterContext) -> Manifest:
    # Baseline, not restricted: a service's image chooses its own user. Jobs do not run as root.
    labels = {**context.labels(), "pod-security.kubernetes.io/enforce": "baseline"}
    metadata = {**context.metadata(context.namespace, in_cluster=True), "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
