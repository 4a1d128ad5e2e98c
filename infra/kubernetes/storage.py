"""Storage of pods: checkpoints on EFS, datasets from snapshots."""

from __future__ import annotations

from collections.abc import Iterable

from infra.kubernetes import pods
from infra.kubernetes.context import ClusterContext, Manifest
from infra.schema import Training
from infra.schema.work import Work


def checkpoints(jobs: Iterable[Training], context: ClusterContext) -> list[Manifest]:
    """Return a static volume and claim for each access point that jobs save to.

    Kubernetes requires a size, which EFS ignores. A volume whose claim is gone takes no other (Kubernetes,
    "Persistent Volumes", Retain), nor does a snapshot's content: in another namespace both are others.
    """
    manifests: list[Manifest] = []
    for point in sorted({job.checkpoints for job in jobs}):
        volume = context.bound_name(point)
        size = {"storage": "1Gi"}
        spec: Manifest = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        manifests += [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": context.metadata(volume, in_cluster=True),
                "spec": {
                    **spec,
                    "capacity": size,
                    "persistentVolumeReclaimPolicy": "Retain",
                    # The file system requires TLS and a role of this account. The driver passes both to
                    # mount.efs (aws-efs-csi-driver, pkg/driver/node.go); by itself it adds only "tls".
                    "mountOptions": ["tls", "iam"],
                    "csi": {
                        "driver": "efs.csi.aws.com",
                        "volumeHandle": f"{context.file_system}::{context.access_points[point]}",
                    },
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": context.metadata(point),
                "spec": {**spec, "resources": {"requests": size}, "volumeName": volume},
            },
        ]
    return manifests


def datasets(entries: Iterable[Work], context: ClusterContext) -> list[Manifest]:
    """Return objects for the snapshots of ``datasets`` and a storage class for each volume.

    The snapshots exist and are retained when their objects are deleted.
    """
    snapshots: dict[str, Manifest] = {}
    classes: list[Manifest] = []
    for entry in entries:
        for number, dataset in enumerate(entry.datasets):
            for manifest in _snapshot(dataset.snapshot, context):
                snapshots[f"{manifest['kind']} {manifest['metadata']['name']}"] = manifest
            parameters = {
                "type": "gp3",
                "throughput": str(dataset.throughput_mib),
                "encrypted": "true",
                # The driver mounts a volume as this type, by default ext4; of an xfs it ignores the UUID,
                # which all volumes of the snapshot share (aws-ebs-csi-driver, pkg/driver/node.go).
                "csi.storage.k8s.io/fstype": dataset.file_system,
            }
            if context.kms_key_arn:
                parameters["kmsKeyId"] = context.kms_key_arn
            if dataset.initialization_rate_mib is not None:
                # In MiB/s, and only with a snapshot (aws-ebs-csi-driver 2463, 2691).
                parameters["volumeInitializationRate"] = str(dataset.initialization_rate_mib)
            # aws-ebs-csi-driver, docs/tagging.md: "StorageClass Tagging"
            for position, (key, value) in enumerate(context.tags(entry.name).items(), 1):
                parameters[f"tagSpecification_{position}"] = f"{key}={value}"
            name = pods.storage_class(entry, number, context)
            storage_class: Manifest = {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": context.metadata(name, entry.name, in_cluster=True),
                "provisioner": "ebs.csi.aws.com",
                "parameters": parameters,
                "reclaimPolicy": "Delete",
                # By default the volume is created before the pod has a zone.
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            classes.append(storage_class)
    return [*snapshots.values(), *classes]


def _snapshot(snapshot: str, context: ClusterContext) -> list[Manifest]:
    group, content = "snapshot.storage.k8s.io/v1", context.bound_name(snapshot)
    return [
        {
            "apiVersion": group,
            "kind": "VolumeSnapshotContent",
            "metadata": context.metadata(content, in_cluster=True),
            "spec": {
                "deletionPolicy": "Retain",
                "driver": "ebs.csi.aws.com",
                "source": {"snapshotHandle": snapshot},
                "volumeSnapshotRef": {"name": snapshot, "namespace": context.namespace},
            },
        },
        {
            "apiVersion": group,
            "kind": "VolumeSnapshot",
            "metadata": context.metadata(snapshot),
            "spec": {"source": {"volumeSnapshotContentName": content}},
        },
    ]
