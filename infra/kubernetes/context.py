"""Context of rendering: names and ids from AWS, the cluster and the stack."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from contracts import names
from contracts.agent import config as agent
from infra.schema import Kubernetes

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object in the form of its YAML."""

LABEL_STACK: Final = "gpu-spot/stack"
LABEL_GROUP: Final = "gpu-spot/group"
GPU: Final = "nvidia.com/gpu"


def named_for(name: str, content: str) -> str:
    """Return the name of an object that follows its content: with another one it is another object."""
    return f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class ClusterContext:
    """The cluster and AWS resources that manifests refer to.

    Attributes:
        access_points: Ids of EFS access points by name; ``users`` are their user and group ids.
        snapshot_gib: Sizes of the snapshots of ``datasets[]``.
        queues: The node agent's configuration of queues by service.
        subnets: Subnets of nodes.
        security_groups: Security groups of nodes, in addition to the cluster's.
        node_profile: Instance profile of nodes; if empty they have the cluster's ``node_role``.
        kms_key_arn: Key of disks; if empty that of the account's EBS default.
        extra_tags: Tags of the stack file.
    """

    stack: str
    region: str
    cluster: Kubernetes
    file_system: str = ""
    access_points: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    snapshot_gib: Mapping[str, int] = field(default_factory=dict)
    queues: Mapping[str, agent.Queue] = field(default_factory=dict)
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    node_profile: str = ""
    kms_key_arn: str = ""
    extra_tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """Namespace of all namespaced objects."""
        return self.cluster.namespace_of(self.stack)

    def cluster_name(self, *parts: str) -> str:
        """Return the name of a cluster-scoped object, with the stack's name: stacks may share a cluster.

        A stack's name has no dot, so ``a`` with an entry ``b-c`` and ``a-b`` with an entry ``c`` differ.
        """
        return f"gpu-spot-{self.stack.lower()}.{'-'.join(parts)}"

    def bound_name(self, name: str) -> str:
        """Return the name of a cluster-scoped object that is bound to an object of the namespace for ever."""
        return f"{self.namespace}.{name}"

    def tags(self, group: str) -> dict[str, str]:
        """Return the AWS tags of an entry's nodes and volumes."""
        return {**self.extra_tags, names.TAG_STACK: self.stack, names.TAG_GROUP: group}

    def metadata(self, name: str, group: str = "", *, in_cluster: bool = False, **extra: Any) -> Manifest:
        """Return an object's metadata; ``in_cluster`` is for cluster-scoped objects."""
        result: Manifest = {"name": name, "labels": self.labels(group)}
        if not in_cluster:
            result["namespace"] = self.namespace
        return {**result, **extra}

    def labels(self, group: str = "") -> dict[str, str]:
        """Return the labels of the stack's objects, and of an entry's."""
        labels = {"app.kubernetes.io/part-of": "gpu-spot", LABEL_STACK: self.stack}
        return {**labels, "app.kubernetes.io/name": group, LABEL_GROUP: group} if group else labels

    def node_labels(self, group: str) -> dict[str, str]:
        """Return the labels of an entry's nodes.

        Karpenter rejects ``app.kubernetes.io`` on nodes (NodePool's CRD: "label domain is restricted").
        """
        return {LABEL_STACK: self.stack, LABEL_GROUP: group}
