"""Parts of pod specs common to jobs and services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from infra.kubernetes.context import GPU, ClusterContext, Manifest
from infra.schema.work import Work

GRACE_SECONDS: Final = 110
"""Seconds from SIGTERM to SIGKILL, and to the deadline in a job's notice: of AWS's 120 s 10 are for the way
from AWS's warning over Karpenter to SIGTERM, and to unmount (docs/contract.md). The node's own deadline is
in no place that a pod without credentials can read."""
DRAIN_SECONDS: Final = 1800
"""Seconds that a service's worker has for the request in work, except at a Spot notice, which is the end of
its instance. RabbitMQ gives a request to another worker after as long (``consumer_timeout``)."""
NODE_GRACE_SECONDS: Final = DRAIN_SECONDS + 10
"""Seconds from the drain of a service's node to its termination. Karpenter deletes pods that a disruption
budget protects their own grace period before its end, so 10 s after a notice (kubernetes-sigs/karpenter 916;
``terminator.go``, ``podDeleteTimeWithGracePeriod``)."""

ROOT_THROUGHPUT_MIB: Final = 250
"""Throughput of a root volume in MiB/s: its images are containers', unpacked at the start of each pod."""

_FIRST_RESTART_SECONDS: Final = 10
_LAST_RESTART_SECONDS: Final = 600

CONTAINER: Final = "work"
GPU_TOLERATIONS: Final[list[Manifest]] = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
"""For the taint of the entries' nodes."""

CONTAINER_SECURITY_CONTEXT: Final[Manifest] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""No privileges and no escalation, as for containers on instances."""


def restart_delay_seconds(ends: int) -> int:
    """Return the seconds from the end of a pod to its successor, the ``ends``-th end of an index of a Job.

    Ends that the failure policy ignores are included, and no field changes it. Source: Kubernetes,
    ``pkg/controller/job``, ``DefaultJobPodFailureBackOff`` and ``MaxJobPodFailureBackOff``. It matters for
    experiments: interruptions of another job begin a new index, those of a run on several nodes a new Job.
    """
    doubled: int = _FIRST_RESTART_SECONDS * 2 ** min(ends - 1, 10)
    return min(doubled, _LAST_RESTART_SECONDS)


def environment(variables: Mapping[str, str]) -> list[Manifest]:
    """Return a container's ``env``. ``$`` is doubled because Kubernetes expands ``$(NAME)``."""
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in variables.items()]


def arguments(command: Sequence[str]) -> list[str]:
    """Return arguments in which the kubelet expands no variables."""
    return [argument.replace("$", "$$") for argument in command]


def memory_volume(size_mib: int | None = None) -> Manifest:
    """Return a volume in memory, which counts towards the pod's memory."""
    source: Manifest = {"medium": "Memory"}
    return {"emptyDir": source if size_mib is None else {**source, "sizeLimit": f"{size_mib}Mi"}}


def placement(entry: Work, context: ClusterContext) -> Manifest:
    """Return the node selector and tolerations for the nodes of an entry."""
    return {"nodeSelector": context.node_labels(entry.name), "tolerations": GPU_TOLERATIONS}


def dataset_volumes(entry: Work, context: ClusterContext) -> tuple[list[Manifest], list[Manifest]]:
    """Return the volumes and mounts of an entry's ``datasets``.

    Each pod gets an ephemeral volume, created from the snapshot in the pod's zone and deleted with it.
    """
    volumes, mounts = [], []
    for number, dataset in enumerate(entry.datasets):
        claim: Manifest = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class(entry, number, context),
            "resources": {"requests": {"storage": f"{context.snapshot_gib[dataset.snapshot]}Gi"}},
            "dataSource": {
                "apiGroup": "snapshot.storage.k8s.io",
                "kind": "VolumeSnapshot",
                "name": dataset.snapshot,
            },
        }
        volumes.append(
            {
                "name": f"dataset-{number}",
                "ephemeral": {
                    "volumeClaimTemplate": {"metadata": {"labels": context.labels(entry.name)}, "spec": claim}
                },
            }
        )
        mounts.append({"name": f"dataset-{number}", "mountPath": dataset.path, "readOnly": True})
    return volumes, mounts


def storage_class(entry: Work, number: int, context: ClusterContext) -> str:
    """Return the name of the storage class of an entry's dataset."""
    return context.cluster_name(entry.name, f"dataset-{number}")


def pod_template(entry: Work, spec: Manifest, context: ClusterContext) -> Manifest:
    """Return the template of an entry's pods.

    EKS gives credentials to pods that are created after their role: with a first permission of the command,
    and without the last, they are replaced.
    """
    metadata: Manifest = {"labels": context.labels(entry.name)}
    if entry.uses_aws:
        metadata["annotations"] = {"gpu-spot/permissions": "yes"}
    return {"metadata": metadata, "spec": spec}
