"""The engines of a cluster that are Helm charts, each at a pinned version, with the values that we need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes

from infra.components.cluster.karpenter import ACCOUNT, NAMESPACE
from infra.kubernetes.place import GPU, LABEL_STACK
from infra.scope import Scope

_MINUTES: Final = 15
"""For a chart's pods to be ready; the first node of a new cluster may just have come."""
KEDA_NAMESPACE: Final = "keda"
KEDA_ACCOUNT: Final = "keda-operator"


@dataclass(frozen=True)
class Chart:
    """Where a chart is, and its version; ``repository`` is empty for one in an OCI registry."""

    name: str
    version: str
    namespace: str
    repository: str = ""


# Looked up in November 2026; what runs on which cluster is said in each project's table of versions.
KARPENTER: Final = Chart("oci://public.ecr.aws/karpenter/karpenter", "1.14.0", NAMESPACE)
KUEUE: Final = Chart("oci://registry.k8s.io/kueue/charts/kueue", "0.20.0", "kueue-system")
KEDA: Final = Chart("keda", "2.21.1", KEDA_NAMESPACE, "https://kedacore.github.io/charts")
TRAINER: Final = Chart("oci://ghcr.io/kubeflow/charts/kubeflow-trainer", "2.4.0", "kubeflow-system")
# The plugin, not the GPU operator, which mostly installs what AL2023's image has: driver and toolkit.
DEVICES: Final = Chart(
    "nvidia-device-plugin", "0.19.2", "nvidia", "https://nvidia.github.io/k8s-device-plugin"
)
GPU_METRICS: Final = Chart(
    "dcgm-exporter", "4.8.1", "nvidia", "https://nvidia.github.io/dcgm-exporter/helm-charts"
)


@dataclass(frozen=True)
class ChartsArgs:
    """``queue_name`` is what Karpenter listens to; ``ready`` is what all charts wait for."""

    scope: Scope
    cluster: str
    provider: pulumi.ProviderResource
    queue_name: pulumi.Input[str]
    charts: Sequence[Chart]
    ready: Sequence[pulumi.Resource]


class Charts(pulumi.ComponentResource):
    """Produces: a Helm release for each chart, installed by whoever runs the engine."""

    made: list[pulumi.Resource]

    def __init__(self, name: str, args: ChartsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the releases."""
        super().__init__("gpu-spot:infra:Charts", name, None, opts)
        self.made = [self._release(args, chart) for chart in args.charts]
        self.register_outputs({})

    def _release(self, args: ChartsArgs, chart: Chart) -> pulumi.Resource:
        short = chart.name.rpartition("/")[2]
        where = kubernetes.helm.v3.RepositoryOptsArgs(repo=chart.repository) if chart.repository else None
        made: pulumi.Resource = kubernetes.helm.v3.Release(
            args.scope.name("chart", short),
            name=short,
            chart=chart.name,
            version=chart.version,
            repository_opts=where,
            namespace=chart.namespace,
            create_namespace=chart.namespace != "kube-system",
            values=_values(args, chart),
            # What fails is taken back, and the next `up` begins anew.
            atomic=True,
            timeout=_MINUTES * 60,
            opts=pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=list(args.ready)),
        )
        return made


def _values(args: ChartsArgs, chart: Chart) -> Mapping[str, Any]:
    on_our_nodes = {"key": LABEL_STACK, "operator": "Exists"}
    bears_gpus = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    if chart is KARPENTER:
        # Left out, the queue is empty and no notice is heard.
        settings = {"clusterName": args.cluster, "interruptionQueue": args.queue_name}
        return {"settings": settings, "serviceAccount": {"name": ACCOUNT}, "replicas": 2}
    if chart is DEVICES:
        # The chart waits for a label of feature discovery, which is not there; Karpenter's nodes have ours.
        terms = {"nodeSelectorTerms": [{"matchExpressions": [on_our_nodes]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return {"affinity": affinity, "tolerations": bears_gpus}
    if chart is GPU_METRICS:
        # A ServiceMonitor asks for Prometheus' operator, which is whoever's it is.
        labels = {LABEL_STACK: args.scope.stack}
        return {"nodeSelector": labels, "tolerations": bears_gpus, "serviceMonitor": {"enabled": False}}
    return {}
