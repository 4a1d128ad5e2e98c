"""The shape of ``kubernetes``, and what every entry that runs there is held to."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from contracts import limits
from infra.catalogue import accelerators as catalogue
from infra.schema.base import Model
from infra.schema.capacity import Capacity
from infra.schema.cluster.own_cluster import OwnCluster

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


def check_capacity(capacity: Capacity) -> None:
    """Raise ``ValueError`` for what Karpenter cannot buy."""
    if not capacity.is_nvidia:
        raise refused(f"with {capacity.types[0]}", "NVIDIA's GPUs")
    for kind in capacity.types:
        if catalogue.lookup(kind).family.needs_ami:
            raise refused(f"with {kind}, which EKS's image does not drive", "types that need no 'ami'")
    counts = {kind: catalogue.lookup(kind).accelerators for kind in capacity.types}
    if len({*counts.values()}) > 1:
        sizes = ", ".join(f"{kind} has {count}" for kind, count in counts.items())
        raise refused(f"with types of several sizes ({sizes} GPUs)", "one number of GPUs (a pod's is fixed)")
    if not capacity.is_kept:
        raise refused("beside fleetType 'request'", "'maintain'")
    if capacity.on_demand_base or capacity.spot_percentage not in (0, 100):
        raise refused("beside a mix of onDemandBase or spotPercentage", "base 0, and 0 or 100 percent")
    if capacity.max_price is not None:
        raise refused(f"beside maxPrice {capacity.max_price}", "left out (Karpenter has none)")
    if capacity.drill:
        raise refused(f"beside drill {capacity.drill}", "0 (it takes the stack's own instances)")
    fallback = capacity.fallback
    if fallback.reservation is not None or fallback.warm_instances:
        raise refused("beside fallback.reservation or fallback.warmInstances", "neither")


def refused(given: str, allowed: str) -> ValueError:
    """Return the error for what an entry on Kubernetes cannot have."""
    return ValueError(f"runsOn 'kubernetes' {given}, allowed: {allowed}")
