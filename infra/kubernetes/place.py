"""What the renderers must know beside the stack file: names of AWS's, of cluster and stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from contracts.agent import config as agent
from infra.schema import Kubernetes

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object, as YAML has it."""

LABEL_STACK: Final = "gpu-spot/stack"
LABEL_GROUP: Final = "gpu-spot/group"
GPU: Final = "nvidia.com/gpu"


@dataclass(frozen=True)
class ClusterPlace:
    """Where objects stand.

    ``access_points`` are ids by name, ``users`` their user and group; ``snapshot_gib`` are sizes of snapshots
    of ``datasets[]``. ``queues`` are as in the node agent's configuration, by service.
    Nodes stand in ``subnets``, with ``security_groups`` beside the cluster's own, and have ``node_profile``
    (an instance profile's name), or where it is empty the cluster's ``node_role``.
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

    @property
    def namespace(self) -> str:
        """Of all objects that have one."""
        return self.cluster.namespace

    def cluster_name(self, *parts: str) -> str:
        """Return the name of an object that has no namespace: another stack may share the cluster."""
        return "-".join(("gpu-spot", self.stack.lower(), *parts))

    def metadata(self, name: str, group: str = "", *, in_cluster: bool = False, **more: Any) -> Object:
        """Return an object's metadata; ``in_cluster``: it has no namespace."""
        found: Object = {"name": name, "labels": self.labels(group)}
        if not in_cluster:
            found["namespace"] = self.namespace
        return {**found, **more}

    def labels(self, group: str = "") -> dict[str, str]:
        """Return what tells our objects from others, and those of an entry from another's."""
        labels = {"app.kubernetes.io/part-of": "gpu-spot", LABEL_STACK: self.stack}
        return {**labels, "app.kubernetes.io/name": group, LABEL_GROUP: group} if group else labels

    def node_labels(self, group: str) -> dict[str, str]:
        """Return the labels of an entry's nodes: ours alone.

        Karpenter refuses ``app.kubernetes.io`` on nodes (NodePool's CRD: "label domain is restricted").
        """
        return {LABEL_STACK: self.stack, LABEL_GROUP: group}
