"""All objects of a stack's entries on Kubernetes, in the order in which they can be applied."""

from __future__ import annotations

from infra.kubernetes import jobs, nodes, services, storage
from infra.kubernetes.place import ClusterPlace, Object
from infra.schema import Service, Settings, Training


def objects(settings: Settings, place: ClusterPlace) -> list[Object]:
    """Return the objects of all entries with ``runsOn: kubernetes``; none without any."""
    there = settings.on_kubernetes
    entries: tuple[Service | Training, ...] = (*there.services, *there.training)
    if not entries:
        return []
    return [
        _namespace(place),
        *(one for entry in entries for one in nodes.pool(entry, place)),
        *nodes.queues(there.training, place),
        *storage.checkpoints(there.training, place),
        *storage.datasets(entries, place),
        *(one for service in there.services for one in services.objects(service, place)),
        *(one for job in there.training for one in jobs.objects(job, place)),
    ]


def _namespace(place: ClusterPlace) -> Object:
    # Pods there have no rights; jobs are no root either, a service's image says itself who it is.
    labels = {**place.labels(), "pod-security.kubernetes.io/enforce": "baseline"}
    metadata = {**place.metadata(place.namespace, in_cluster=True), "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
