"""An EKS cluster created by the stack: control plane, nodes, add-ons, Karpenter, charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_kubernetes as kubernetes

from infra.components.cluster import charts, job_failures, objects
from infra.components.cluster.addons import BEFORE_NODES, SECRETS, Addons, AddonsArgs
from infra.components.cluster.charts import Charts, ChartsArgs
from infra.components.cluster.control_plane import ControlPlane, ControlPlaneArgs
from infra.components.cluster.ingress import ClusterIngress, ClusterIngressArgs
from infra.components.cluster.karpenter import Karpenter, KarpenterArgs
from infra.components.cluster.system_nodes import SystemNodes, SystemNodesArgs
from infra.components.kubernetes.pod_identity import PodIdentity, PodIdentityArgs
from infra.components.network.network import Network
from infra.iam.statement import Statement
from infra.schema import Kubernetes, Settings
from infra.schema.cluster.created_cluster import CreatedCluster
from infra.scope import Scope

_ALWAYS: Final = (
    "coredns",
    "snapshot-controller",
    "aws-ebs-csi-driver",
    "aws-efs-csi-driver",
    "eks-node-monitoring-agent",
)


@dataclass(frozen=True)
class EksClusterArgs:
    """``entries`` are the settings of entries on Kubernetes.

    ``engine_statements`` are the permissions of cluster components (``keda``, ``efs-csi``) by name.
    """

    scope: Scope
    settings: Kubernetes
    created: CreatedCluster
    entries: Settings
    network: Network
    engine_statements: Mapping[str, Sequence[Statement]]
    log_retention_days: int


class EksCluster(pulumi.ComponentResource):
    """A cluster with everything that the entries' objects need.

    Attributes:
        created_name: The cluster's name as an output of its creation.
        node_profile: The instance profile of Karpenter's nodes.
        depends_on: What objects must wait for: access, add-ons and custom resource definitions.
    """

    created_name: pulumi.Output[str]
    node_profile: pulumi.Output[str]
    provider: kubernetes.Provider
    depends_on: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: EksClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the cluster."""
        super().__init__("gpu-spot:infra:OwnEksCluster", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        scope, cluster = args.scope, args.settings.cluster
        plane = ControlPlane(
            scope.name("cluster"),
            ControlPlaneArgs(
                scope,
                args.settings,
                args.created,
                args.network,
                args.log_retention_days,
                job_failures.watched(args.settings, args.entries.training),
            ),
            self._child,
        )
        self.created_name = plane.name
        ingress = ClusterIngress(
            scope.name("cluster-ingress"),
            ClusterIngressArgs(scope, plane.security_group_id, args.network, args.created.allowed_sources),
            self._child,
        )
        first = self._addons("node-addons", BEFORE_NODES, ())
        nodes = SystemNodes(
            scope.name("system-nodes"),
            SystemNodesArgs(
                scope,
                args.created,
                args.settings.version,
                plane.name,
                args.network,
                [*first.addons, *ingress.rules],
            ),
            self._child,
        )
        rest = self._addons("addons", (*_ALWAYS, *([SECRETS] if self._has_secrets else [])), [nodes.group])
        karpenter = Karpenter(scope.name("karpenter"), KarpenterArgs(scope, cluster, plane.name), self._child)
        self.node_profile = karpenter.node_profile
        self.provider = objects.provider(scope, plane.endpoint)
        installed = Charts(
            scope.name("charts"),
            ChartsArgs(
                scope,
                args.settings,
                self.provider,
                karpenter.queue_name,
                charts.needed(args.entries),
                [
                    *plane.endpoint.depends_on,
                    *ingress.rules,
                    *rest.addons,
                    *karpenter.depends_on,
                    *self._keda(),
                ],
            ),
            self._child,
        )
        self.depends_on = [*plane.endpoint.depends_on, *rest.addons, *installed.releases]
        self.register_outputs({"name": self.created_name})

    @property
    def _has_secrets(self) -> bool:
        entries = self._args.entries
        return any(entry.secrets for entry in (*entries.services, *entries.training)) or any(
            service.queue is not None and service.queue.has_secret for service in entries.services
        )

    def _addons(self, short: str, names: Sequence[str], ready: Sequence[pulumi.Resource]) -> Addons:
        args = self._args
        checkpoints = args.engine_statements.get("efs-csi", ())
        return Addons(
            args.scope.name(short),
            AddonsArgs(args.scope, args.settings, args.created, self.created_name, names, ready, checkpoints),
            self._child,
        )

    def _keda(self) -> list[pulumi.Resource]:
        """Declare the role of KEDA's operator if a service scales."""
        args = self._args
        if not (allowed := args.engine_statements.get("keda")):
            return []
        identity = PodIdentityArgs(
            args.scope,
            args.settings.cluster,
            charts.KEDA_NAMESPACE,
            charts.KEDA_ACCOUNT,
            allowed,
            created_cluster_name=self.created_name,
        )
        return [PodIdentity(args.scope.name("keda-pods"), identity, self._child)]
