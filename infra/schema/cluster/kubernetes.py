"""The shape of ``kubernetes``, and what an entry that runs there can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, model_validator

from contracts import limits
from infra.catalogue import accelerators as catalogue
from infra.schema.base import Model
from infra.schema.cluster.own_cluster import OwnCluster

if TYPE_CHECKING:
    from infra.schema.capacity import Capacity
    from infra.schema.jobs.training import Training
    from infra.schema.services.service import Service

RunsOn: TypeAlias = Literal["instances", "kubernetes"]
"""Which half an entry runs on."""

ClusterName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")]
"""As EKS has it (``CreateCluster``, "name")."""
RoleName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9+=,.@_-]{1,64}$")]


class Kubernetes(Model):
    """The EKS cluster of entries with ``runsOn: kubernetes``; docs/kubernetes.md names the engines in it."""

    cluster: ClusterName
    """The name of an EKS cluster in the stack's network: one that is there, or with ``own`` the stack's."""
    own: OwnCluster | None = None
    """Declares the cluster, its nodes and its engines; left out, they are there."""
    node_role: RoleName | None = None
    """The IAM role of Karpenter's nodes in a cluster that is there; one of the stack's own has its own."""
    node_image: Annotated[str, Field(pattern=r"^(al2023|bottlerocket)@v[0-9]+(\.[0-9]+)*$", max_length=40)]
    """Their AMI as Karpenter's alias, pinned: a newer one replaces nodes."""
    version: Literal["1.35", "1.36"] = "1.36"
    """Of the cluster, whose objects are rendered for it."""
    namespace: limits.Name = "gpu-spot"
    """Of all objects that have one."""
    quota_gpus: Annotated[int, Field(ge=1, le=10_000)] = 64
    """How many GPUs all training jobs may hold at once (Kueue)."""
    queued_per_worker: Annotated[int, Field(ge=1, le=10_000)] = 5
    """How many requests may wait for each worker before KEDA adds one."""
    checkout_image: limits.ContainerImage | None = None
    """Has ``git`` and fetches the jobs' code; left out, each job's own image does."""

    @model_validator(mode="after")
    def _has_nodes_of_one_owner(self) -> Kubernetes:
        if self.own is None and self.node_role is None:
            raise ValueError("nodeRole is missing, allowed: the role of Karpenter's nodes, or own")
        if self.own is not None and self.node_role is not None:
            raise ValueError(f"nodeRole {self.node_role!r} beside own, allowed: one of the two")
        return self


_OF_THE_AGENT: Final[dict[str, str]] = {
    "dataset": "datasets[], volumes from snapshots",
    "python": "an image",
    "artifacts": "$GPU_SPOT_ARTIFACTS on the file system",
    "repository_secret": "a public repository, or an image with the code",
    "prepare": "datasets[], volumes from snapshots",
    "capacity_block": "on instances",
    "deadline": "on instances",
    "budget": "on instances",
}
"""Keys of a job that the node agent or the controller keeps, and what is allowed in their place."""


def check_training(job: Training) -> None:
    """Raise ``ValueError`` for what nobody would do for a job on Kubernetes."""
    if job.image is None:
        raise _refused("without an image", "with one, which runs as a pod")
    for key, instead in _OF_THE_AGENT.items():
        if getattr(job, key) is not None:
            raise _refused(f"beside {_as_written(job, key)}", instead)
    if job.has_volume:
        raise _refused(
            f"beside volumeGiB {job.volume_gib}",
            "0 (checkpoints on the file system, datasets[] from snapshots)",
        )
    if "stalled_after_minutes" in job.model_fields_set and job.stalled_after_minutes:
        raise _refused(f"beside stalledAfterMinutes {job.stalled_after_minutes}", "0 (nobody looks there)")
    if job.nodes > 1 and job.matrix is not None:
        raise _refused(f"beside nodes {job.nodes} and matrix", "one of the two")
    check_capacity(job.capacity)


def check_service(service: Service) -> None:
    """Raise ``ValueError`` for what nobody would do for a service on Kubernetes."""
    if service.image is None:
        raise _refused("without an image", "with one, which runs as a pod")
    if service.slots_per_gpu > 1:
        # A shared GPU is many to the device plugin and one to Karpenter, which would start too many nodes.
        raise _refused(f"beside slotsPerGpu {service.slots_per_gpu}", "1")
    if service.on_premises is not None:
        raise _refused("beside onPremises", "on instances")
    check_capacity(service.capacity)


def check_capacity(capacity: Capacity) -> None:
    """Raise ``ValueError`` for what Karpenter cannot buy."""
    if not capacity.is_nvidia:
        raise _refused(f"with {capacity.types[0]}", "NVIDIA's GPUs")
    for kind in capacity.types:
        if catalogue.lookup(kind).family.needs_ami:
            raise _refused(f"with {kind}, which EKS's image does not drive", "types that need no 'ami'")
    counts = {kind: catalogue.lookup(kind).accelerators for kind in capacity.types}
    if len({*counts.values()}) > 1:
        told = ", ".join(f"{kind} has {count}" for kind, count in counts.items())
        raise _refused(f"with types of several sizes ({told} GPUs)", "one number of GPUs (a pod's is fixed)")
    if not capacity.is_kept:
        raise _refused("beside fleetType 'request'", "'maintain'")
    if capacity.on_demand_base or capacity.spot_percentage not in (0, 100):
        raise _refused("beside a mix of onDemandBase or spotPercentage", "base 0, and 0 or 100 percent")
    if capacity.max_price is not None:
        raise _refused(f"beside maxPrice {capacity.max_price}", "left out (Karpenter has none)")
    if capacity.drill:
        raise _refused(f"beside drill {capacity.drill}", "0 (it takes the stack's own instances)")
    fallback = capacity.fallback
    if fallback.reservation is not None or fallback.warm_instances:
        raise _refused("beside fallback.reservation or fallback.warmInstances", "neither")


def _as_written(model: Model, field: str) -> str:
    return type(model).model_fields[field].alias or field


def _refused(told: str, allowed: Any) -> ValueError:
    return ValueError(f"runsOn 'kubernetes' {told}, allowed: {allowed}")
