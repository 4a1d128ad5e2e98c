"""Helm charts of a cluster, each at a pinned version, with their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes

from infra.components.cluster.karpenter import ACCOUNT, NAMESPACE
from infra.kubernetes.context import LABEL_STACK
from infra.kubernetes.pods import GPU_TOLERATIONS
from infra.schema import Settings
from infra.scope import Scope

_TIMEOUT_MINUTES: Final = 15
"""Timeout for a chart's pods to become ready; includes the boot of a new cluster's first node."""
KEDA_NAMESPACE: Final = "keda"
KEDA_ACCOUNT: Final = "keda-operator"


@dataclass(frozen=True)
class Chart:
    """A chart and its version; ``repository`` is empty for an OCI registry."""

    name: str
    version: str
    namespace: str
    repository: str = ""


# As of November 2026; each project's compatibility table lists the cluster versions.
KARPENTER: Final = Chart("oci://public.ecr.aws/karpenter/karpenter", "1.14.0", NAMESPACE)
KUEUE: Final = Chart("oci://registry.k8s.io/kueue/charts/kueue", "0.20.0", "kueue-system")
KEDA: Final = Chart("keda", "2.21.1", KEDA_NAMESPACE, "https://kedacore.github.io/charts")
TRAINER: Final = Chart("oci://ghcr.io/kubeflow/charts/kubeflow-trainer", "2.4.0", "kubeflow-system")
# Not the GPU operator: AL2023's image has most of what it installs, the driver and the toolkit.
DEVICES: Final = Chart(
    "nvidia-device-plugin", "0.19.2", "nvidia", "https://nvidia.github.io/k8s-device-plugin"
)
GPU_METRICS: Final = Chart(
    "dcgm-exporter", "4.8.1", "nvidia", "https://nvidia.github.io/dcgm-exporter/helm-charts"
)


def needed(entries: Settings) -> list[Chart]:
    """Return the charts of a cluster with these entries."""
    charts = [KARPENTER, DEVICES, GPU_METRICS]
    if entries.training:
        charts.append(KUEUE)
    if any(job.nodes.needs_all for job in entries.training):
        charts.append(TRAINER)
    if any(service.scaling is not None for service in entries.services):
        charts.append(KEDA)
    return charts


@dataclass(frozen=True)
class ChartsArgs:
    """``queue_name`` is Karpenter's interruption queue."""

    scope: Scope
    cluster: str
    provider: pulumi.ProviderResource
    queue_name: pulumi.Input[str]
    charts: Sequence[Chart]
    depends_on: Sequence[pulumi.Resource]


class Charts(pulumi.ComponentResource):
    """A Helm release for each chart, installed by the Pulumi program's process."""

    releases: list[pulumi.Resource]

    def __init__(self, name: str, args: ChartsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the releases."""
        super().__init__("gpu-spot:infra:Charts", name, None, opts)
        self.releases = [self._release(args, chart) for chart in args.charts]
        self.register_outputs({})

    def _release(self, args: ChartsArgs, chart: Chart) -> pulumi.Resource:
        short = chart.name.rpartition("/")[2]
        repository = (
            kubernetes.helm.v3.RepositoryOptsArgs(repo=chart.repository) if chart.repository else None
        )
        resource: pulumi.Resource = kubernetes.helm.v3.Release(
            args.scope.name("chart", short),
            name=short,
            chart=chart.name,
            version=chart.version,
            repository_opts=repository,
            namespace=chart.namespace,
            create_namespace=chart.namespace != "kube-system",
            values=_values(args, chart),
            # A failed release is rolled back; the next `pulumi up` retries it.
            atomic=True,
            timeout=_TIMEOUT_MINUTES * 60,
            opts=pulumi.ResourceOptions(
                parent=self, provider=args.provider, depends_on=list(args.depends_on)
            ),
        )
        return resource


def _values(args: ChartsArgs, chart: Chart) -> Mapping[str, Any]:
    has_stack_label = {"key": LABEL_STACK, "operator": "Exists"}
    if chart is KARPENTER:
        # Without the queue Karpenter handles no interruption notice.
        settings = {"clusterName": args.cluster, "interruptionQueue": args.queue_name}
        return {"settings": settings, "serviceAccount": {"name": ACCOUNT}, "replicas": 2}
    if chart is DEVICES:
        # The chart's default is a label of feature discovery, which is not installed; nodes have our label.
        terms = {"nodeSelectorTerms": [{"matchExpressions": [has_stack_label]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return {"affinity": affinity, "tolerations": GPU_TOLERATIONS}
    if chart is GPU_METRICS:
        # A ServiceMonitor needs the Prometheus operator, which the stack does not install.
        labels = {LABEL_STACK: args.scope.stack}
        return {
            "nodeSelector": labels,
            "tolerations": GPU_TOLERATIONS,
            "serviceMonitor": {"enabled": False},
        }
    return {}
