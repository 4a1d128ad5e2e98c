"""Parts of pods that several kinds of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.kubernetes.place import GPU, LABEL_GROUP, ClusterPlace, Object
from infra.schema import Dataset
from infra.schema.work import Work

GRACE_SECONDS: Final = 110
"""From SIGTERM to SIGKILL: of AWS's 120 s of notice, 10 s are left to unmount (docs/contract.md)."""
NODE_GRACE_SECONDS: Final = 120
"""From the notice to a node's end. What may not be evicted (``do-not-disrupt``, a disruption budget) would
hear nothing of the notice: Karpenter ends such pods only so long before the end of a node's
``terminationGracePeriod`` as their own takes (kubernetes-sigs/karpenter 916)."""

CONTAINER: Final = "work"

CONFINED: Final[Object] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""No rights, and no way to them: as containers on instances have it."""


def environment(variables: Mapping[str, str]) -> list[Object]:
    """Return variables as a container has them. ``$`` is doubled: ``$(NAME)`` would be another variable's."""
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in variables.items()]


def arguments(command: Sequence[str]) -> list[str]:
    """Return arguments that the kubelet expands no variables in."""
    return [one.replace("$", "$$") for one in command]


def memory(size_mib: int | None = None) -> Object:
    """Return a volume in memory, which counts as the pod's."""
    bounded: Object = {"medium": "Memory"}
    return {"emptyDir": bounded if size_mib is None else {**bounded, "sizeLimit": f"{size_mib}Mi"}}


def placement(entry: Work) -> Object:
    """Return what puts a pod on the nodes of its entry, and nothing else there."""
    return {
        "nodeSelector": {LABEL_GROUP: entry.name},
        "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
    }


def dataset_volumes(entry: Work, place: ClusterPlace) -> tuple[list[Object], list[Object]]:
    """Return the volumes and mounts of an entry's ``datasets``.

    Each pod has a volume of its own, made from the snapshot in the pod's zone, and gone with it.
    """
    volumes, mounts = [], []
    for number, dataset in enumerate(entry.datasets):
        claim: Object = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class(entry, number, place),
            "resources": {"requests": {"storage": f"{place.snapshot_gib[dataset.snapshot]}Gi"}},
            "dataSource": {
                "apiGroup": "snapshot.storage.k8s.io",
                "kind": "VolumeSnapshot",
                "name": snapshot_name(dataset),
            },
        }
        volumes.append(
            {
                "name": f"dataset-{number}",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"labels": place.labels(entry.name)},
                        "spec": claim,
                    }
                },
            }
        )
        mounts.append({"name": f"dataset-{number}", "mountPath": dataset.path, "readOnly": True})
    return volumes, mounts


def snapshot_name(dataset: Dataset) -> str:
    """Return the name of the object that stands for a snapshot."""
    return dataset.snapshot


def storage_class(entry: Work, number: int, place: ClusterPlace) -> str:
    """Return the name of the storage class of an entry's dataset."""
    return place.cluster_name(entry.name, f"dataset-{number}")


def template(labels: Mapping[str, str], spec: Object, **annotations: Any) -> Object:
    """Return a pod template."""
    metadata: Object = {"labels": dict(labels)}
    if annotations:
        metadata["annotations"] = annotations["annotations"]
    return {"metadata": metadata, "spec": spec}
