"""What pods read and write: checkpoints on EFS, datasets from snapshots."""

from __future__ import annotations

from collections.abc import Iterable

from infra.kubernetes import pods
from infra.kubernetes.place import ClusterPlace, Object
from infra.schema import Training
from infra.schema.work import Work


def checkpoints(jobs: Iterable[Training], place: ClusterPlace) -> list[Object]:
    """Return a volume, and the claim of it, for each access point that jobs save to; both are static.

    The sizes are what Kubernetes asks for: a file system has none.
    """
    found: list[Object] = []
    for point in sorted({job.checkpoints for job in jobs}):
        volume = place.cluster_name(point)
        size = {"storage": "1Gi"}
        spec: Object = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        found.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": place.metadata(volume, in_cluster=True),
                "spec": {
                    **spec,
                    "capacity": size,
                    "persistentVolumeReclaimPolicy": "Retain",
                    # The file system lets in this account's roles alone, and over TLS alone. The driver hands
                    # both on to mount.efs (aws-efs-csi-driver, pkg/driver/node.go); with an access point it
                    # would add "tls" itself, never "iam".
                    "mountOptions": ["tls", "iam"],
                    "csi": {
                        "driver": "efs.csi.aws.com",
                        "volumeHandle": f"{place.file_system}::{place.access_points[point]}",
                    },
                },
            }
        )
        found.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": place.metadata(point),
                "spec": {**spec, "resources": {"requests": size}, "volumeName": volume},
            }
        )
    return found


def datasets(entries: Iterable[Work], place: ClusterPlace) -> list[Object]:
    """Return the snapshots that ``datasets`` name as objects, and a storage class for each volume of them.

    The snapshots are there already and stay: an object that goes takes none with it.
    """
    snapshots: dict[str, Object] = {}
    classes: list[Object] = []
    for entry in entries:
        for number, dataset in enumerate(entry.datasets):
            for one in _snapshot(pods.snapshot_name(dataset), dataset.snapshot, place):
                snapshots[f"{one['kind']} {one['metadata']['name']}"] = one
            parameters = {"type": "gp3", "throughput": str(dataset.throughput_mib), "encrypted": "true"}
            if dataset.initialization_rate_mib is not None:
                # In MiB/s, and only with a snapshot (aws-ebs-csi-driver 2463, 2691).
                parameters["volumeInitializationRate"] = str(dataset.initialization_rate_mib)
            name = pods.storage_class(entry, number, place)
            classes.append(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": place.metadata(name, entry.name, in_cluster=True),
                    "provisioner": "ebs.csi.aws.com",
                    "parameters": parameters,
                    "reclaimPolicy": "Delete",
                    # Else the volume is made before the pod has a zone.
                    "volumeBindingMode": "WaitForFirstConsumer",
                }
            )
    return [*snapshots.values(), *classes]


def _snapshot(name: str, snapshot: str, place: ClusterPlace) -> list[Object]:
    group, content = "snapshot.storage.k8s.io/v1", place.cluster_name(name)
    return [
        {
            "apiVersion": group,
            "kind": "VolumeSnapshotContent",
            "metadata": place.metadata(content, in_cluster=True),
            "spec": {
                "deletionPolicy": "Retain",
                "driver": "ebs.csi.aws.com",
                "source": {"snapshotHandle": snapshot},
                "volumeSnapshotRef": {"name": name, "namespace": place.namespace},
            },
        },
        {
            "apiVersion": group,
            "kind": "VolumeSnapshot",
            "metadata": place.metadata(name),
            "spec": {"source": {"volumeSnapshotContentName": content}},
        },
    ]
