"""Settings of ``kubernetes``, and the checks of entries that run on it."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from contracts import limits
from infra.catalogue import accelerators as catalogue
from infra.schema.base import Model
from infra.schema.capacity import Capacity
from infra.schema.cluster.created_cluster import CreatedCluster
from infra.schema.network import Network

ClusterName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")]
"""Name of an EKS cluster. Source: EKS API reference, ``CreateCluster``."""
_OF_OTHERS: Final = ("default", "karpenter", "keda", "kubeflow-system", "kueue-system", "nvidia")
"""Namespaces of others, whose pods the stack would restrict. Kubernetes' own begin with ``kube-``."""
RoleName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9+=,.@_-]{1,64}$")]


class Kubernetes(Model):
    """The EKS cluster of entries with ``runsOn: kubernetes``; docs/kubernetes.md lists its controllers."""

    cluster: ClusterName
    """Name of an EKS cluster in the stack's VPC: an existing one, or with ``create`` the one that the stack
    creates."""
    create: CreatedCluster | None = None
    """Creates the cluster, its nodes and its controllers. Default: the cluster exists and has them."""
    node_role: RoleName | None = None
    """IAM role of Karpenter's nodes in an existing cluster. A created cluster has a role of its own."""
    node_image: Annotated[str, Field(pattern=r"^al2023@v[0-9]+(\.[0-9]+)*$", max_length=40)]
    """AMI of Karpenter's nodes, as a Karpenter alias with a version, such as ``al2023@v20261103``. A new
    version replaces nodes. Bottlerocket's disks and device plugin are others."""
    version: Literal["1.35", "1.36", "1.37"] = "1.36"
    """Kubernetes version of the cluster, for which its objects are rendered. A created cluster's add-ons,
    system nodes and charts follow it."""
    namespace: limits.Name | None = None
    """Namespace of all namespaced objects, of nothing else: the stack creates, restricts and deletes it.
    Default: ``gpu-spot-`` and the stack's name."""
    quota_gpus: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Kueue quota: the number of GPUs that all training jobs may use at the same time."""
    queued_per_worker: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Number of waiting requests per worker above which KEDA adds a worker. Workers in work are counted
    beside them; on SQS each request in flight is one."""
    checkout_image: limits.ContainerImage | None = None
    """Container image with ``git`` that checks out the jobs' code. Default: the image of each job."""

    def namespace_of(self, stack: str) -> str:
        """Return the namespace of a stack's objects."""
        return self.namespace or f"gpu-spot-{stack.lower()}"

    @field_validator("namespace")
    @classmethod
    def _is_of_nothing_else(cls, namespace: str | None) -> str | None:
        if namespace is not None and (namespace in _OF_OTHERS or namespace.startswith("kube-")):
            raise ValueError(
                f"must be a namespace of the stack's own, not {namespace!r}; choose another name"
            )
        return namespace

    @model_validator(mode="after")
    def _has_an_image_of_its_version(self) -> Kubernetes:
        image = self.create.system_image if self.create is not None else None
        if image is not None and not image.startswith(f"{self.version}."):
            raise ValueError(f"create.systemImage must be of version {self.version!r}, not {image!r}")
        return self

    @model_validator(mode="after")
    def _has_one_node_role(self) -> Kubernetes:
        if self.create is None and self.node_role is None:
            raise ValueError("nodeRole is missing; set the role of Karpenter's nodes, or create a cluster")
        if self.create is not None and self.node_role is not None:
            raise ValueError(f"nodeRole {self.node_role!r} and create are both set; remove one of them")
        return self


def check_network(network: Network) -> None:
    """Raise ``ValueError`` for a network in which a created cluster cannot start."""
    if len(network.zones) == 1:
        raise ValueError(
            "must list at least two zones if the cluster is created (EKS requires them), not "
            f"{network.zones[0]} alone"
        )
    if network.is_closed:
        raise ValueError(
            "create needs network.egress 'nat-gateway' or 'nat-gateway-per-zone', not 'none': "
            "the charts' images are in public registries"
        )


def check_capacity(capacity: Capacity) -> None:
    """Raise ``ValueError`` for capacity that Karpenter cannot provide."""
    if not capacity.is_nvidia:
        raise unsupported_error(f"with {capacity.types[0]}", "use types with NVIDIA GPUs")
    for kind in capacity.types:
        if catalogue.lookup(kind).family.needs_ami:
            raise unsupported_error(
                f"with {kind}, for which EKS's AMI has no driver", "use types that need no 'ami'"
            )
    counts = {kind: catalogue.lookup(kind).accelerators for kind in capacity.types}
    if len({*counts.values()}) > 1:
        sizes = ", ".join(f"{kind} has {count}" for kind, count in counts.items())
        raise unsupported_error(
            f"with types of several sizes ({sizes} GPUs)", "use types with the same number of GPUs"
        )
    if not capacity.is_managed:
        raise unsupported_error("with fleetType 'request'", "use 'maintain'")
    if capacity.on_demand_base or capacity.spot_percentage not in (0, 100):
        raise unsupported_error(
            "with a mix of Spot and On-Demand", "set onDemandBase to 0 and spotPercentage to 0 or 100"
        )
    if capacity.max_price is not None:
        raise unsupported_error(
            f"with maxPrice {capacity.max_price:f}", "remove it (Karpenter has no maximum price)"
        )
    if capacity.drill:
        raise unsupported_error(
            f"with drill {capacity.drill}", "set it to 0 (drills interrupt instances of groups)"
        )
    fallback = capacity.fallback
    if fallback.reservation is not None or fallback.warm_instances:
        raise unsupported_error("with fallback.reservation or fallback.warmInstances", "remove them")


def unsupported_error(setting: str, remedy: str) -> ValueError:
    """Return the error for a setting that entries on Kubernetes do not support."""
    return ValueError(f"runsOn 'kubernetes' does not work {setting}; {remedy}")
