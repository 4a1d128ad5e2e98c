"""A cluster of the stack's own: control plane, nodes, add-ons, Karpenter, charts, in that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_kubernetes as kubernetes

from infra.components.cluster import charts, objects
from infra.components.cluster.addons import BEFORE_NODES, Addons, AddonsArgs
from infra.components.cluster.charts import Charts, ChartsArgs
from infra.components.cluster.control_plane import ControlPlane, ControlPlaneArgs
from infra.components.cluster.karpenter import Karpenter, KarpenterArgs
from infra.components.cluster.system_nodes import SystemNodes, SystemNodesArgs
from infra.components.kubernetes.pod_identity import PodIdentity, PodIdentityArgs
from infra.components.network.network import Network
from infra.iam.statement import Statement
from infra.schema import Kubernetes, Settings
from infra.schema.cluster.own_cluster import OwnCluster
from infra.scope import Scope

_ALWAYS: Final = ("coredns", "aws-ebs-csi-driver", "aws-efs-csi-driver", "snapshot-controller")
_SECRETS: Final = "aws-secrets-store-csi-driver-provider"


@dataclass(frozen=True)
class OwnClusterArgs:
    """``there`` has the entries on Kubernetes; ``engines`` is what each engine may do for them, by name."""

    scope: Scope
    settings: Kubernetes
    own: OwnCluster
    there: Settings
    network: Network
    engines: Mapping[str, Sequence[Statement]]
    log_retention_days: int


class OwnEksCluster(pulumi.ComponentResource):
    """Produces: the cluster and what the entries' objects need in it.

    ``made`` is its name once it is there; ``ready`` is what brings the kinds of objects; ``node_profile`` is
    of Karpenter's nodes.
    """

    made: pulumi.Output[str]
    node_profile: pulumi.Output[str]
    provider: kubernetes.Provider
    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: OwnClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the cluster."""
        super().__init__("gpu-spot:infra:OwnEksCluster", name, None, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        scope, cluster = args.scope, args.settings.cluster
        plane = ControlPlane(
            scope.name("cluster"),
            ControlPlaneArgs(scope, args.settings, args.own, args.network, args.log_retention_days),
            self._child,
        )
        self.made = plane.name
        first = self._addons("node-addons", BEFORE_NODES, ())
        nodes = SystemNodes(
            scope.name("system-nodes"),
            SystemNodesArgs(scope, args.own, plane.name, args.network, first.made),
            self._child,
        )
        rest = self._addons("addons", (*_ALWAYS, *([_SECRETS] if self._has_secrets else [])), [nodes.group])
        karpenter = Karpenter(scope.name("karpenter"), KarpenterArgs(scope, cluster, plane.name), self._child)
        self.node_profile = karpenter.node_profile
        self.provider = objects.provider(scope, plane.reached)
        installed = Charts(
            scope.name("charts"),
            ChartsArgs(
                scope,
                cluster,
                self.provider,
                karpenter.queue_name,
                self._charts(),
                [*plane.reached.ready, *rest.made, *karpenter.ready, *self._keda()],
            ),
            self._child,
        )
        self.ready = [*plane.reached.ready, *rest.made, *installed.made]
        self.register_outputs({"name": self.made})

    @property
    def _has_secrets(self) -> bool:
        services = self._args.there.services
        return any(service.queue is not None and service.queue.has_secret for service in services)

    @property
    def _scales(self) -> bool:
        return any(service.scaling is not None for service in self._args.there.services)

    def _addons(self, short: str, names: Sequence[str], ready: Sequence[pulumi.Resource]) -> Addons:
        args = self._args
        checkpoints = args.engines.get("efs-csi", ())
        return Addons(
            args.scope.name(short),
            AddonsArgs(args.scope, args.own, args.settings.cluster, self.made, names, ready, checkpoints),
            self._child,
        )

    def _keda(self) -> list[pulumi.Resource]:
        """Declare who KEDA's operator is, if it looks at queues."""
        args = self._args
        if not (allowed := args.engines.get("keda")):
            return []
        identity = PodIdentityArgs(
            args.scope,
            args.settings.cluster,
            charts.KEDA_NAMESPACE,
            charts.KEDA_ACCOUNT,
            allowed,
            made=self.made,
        )
        return [PodIdentity(args.scope.name("keda-pods"), identity, self._child)]

    def _charts(self) -> list[charts.Chart]:
        there = self._args.there
        wanted = [charts.KARPENTER, charts.DEVICES, charts.GPU_METRICS]
        if there.training:
            wanted.append(charts.KUEUE)
        if any(job.nodes > 1 for job in there.training):
            wanted.append(charts.TRAINER)
        if self._scales:
            wanted.append(charts.KEDA)
        return wanted
