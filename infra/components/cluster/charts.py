"""Helm charts of a cluster, each at a pinned version, with their values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes

from infra.catalogue import chart_versions
from infra.components.cluster.karpenter import ACCOUNT, NAMESPACE
from infra.kubernetes.context import LABEL_STACK
from infra.kubernetes.pods import GPU_TOLERATIONS
from infra.schema import Kubernetes, Settings
from infra.scope import Scope

_TIMEOUT_MINUTES: Final = 15
"""Timeout for a chart's pods to become ready; includes the boot of a new cluster's first node."""
KEDA_NAMESPACE: Final = "keda"
KEDA_ACCOUNT: Final = "keda-operator"


@dataclass(frozen=True)
class Chart:
    """A chart and its versions, oldest first; ``repository`` is empty for an OCI registry.

    ``before``: a chart with its custom resource definitions. Helm never updates those of a ``crds`` folder.
    """

    name: str
    versions: tuple[chart_versions.ChartVersion, ...]
    namespace: str
    repository: str = ""
    before: Chart | None = None


_KARPENTER_CRDS: Final = Chart(
    "oci://public.ecr.aws/karpenter/karpenter-crd", chart_versions.KARPENTER, NAMESPACE
)
KARPENTER: Final = Chart(
    "oci://public.ecr.aws/karpenter/karpenter", chart_versions.KARPENTER, NAMESPACE, before=_KARPENTER_CRDS
)
KUEUE: Final = Chart("oci://registry.k8s.io/kueue/charts/kueue", chart_versions.KUEUE, "kueue-system")
KEDA: Final = Chart("keda", chart_versions.KEDA, KEDA_NAMESPACE, "https://kedacore.github.io/charts")
TRAINER: Final = Chart(
    "oci://ghcr.io/kubeflow/charts/kubeflow-trainer", chart_versions.TRAINER, "kubeflow-system"
)
# Not the GPU operator: AL2023's image has most of what it installs, the driver and the toolkit.
DEVICES: Final = Chart(
    "nvidia-device-plugin", chart_versions.DEVICES, "nvidia", "https://nvidia.github.io/k8s-device-plugin"
)
GPU_METRICS: Final = Chart(
    "dcgm-exporter",
    chart_versions.GPU_METRICS,
    "nvidia",
    "https://nvidia.github.io/dcgm-exporter/helm-charts",
)


def needed(entries: Settings) -> list[Chart]:
    """Return the charts of a cluster with these entries, without those ``before`` them."""
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
    settings: Kubernetes
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
        before = [] if chart.before is None else [self._release(args, chart.before)]
        options = kubernetes.helm.v3.RepositoryOptsArgs(repo=chart.repository) if chart.repository else None
        resource: pulumi.Resource = kubernetes.helm.v3.Release(
            args.scope.name("chart", short),
            name=short,
            chart=chart.name,
            version=chart_versions.for_kubernetes(chart.versions, args.settings.version).version,
            skip_crds=True if before else None,
            repository_opts=options,
            namespace=chart.namespace,
            create_namespace=chart.namespace != "kube-system",
            values=_values(args, chart),
            # A failed release is rolled back; the next `pulumi up` retries it.
            atomic=True,
            timeout=_TIMEOUT_MINUTES * 60,
            opts=pulumi.ResourceOptions(
                parent=self, provider=args.provider, depends_on=[*args.depends_on, *before]
            ),
        )
        return resource


def _values(args: ChartsArgs, chart: Chart) -> Mapping[str, Any]:
    has_stack_label = {"key": LABEL_STACK, "operator": "Exists"}
    if chart is KARPENTER:
        # Without the queue Karpenter handles no interruption notice.
        settings = {
            "clusterName": args.settings.cluster,
            "interruptionQueue": args.queue_name,
            # Replaces a node whose monitoring agent reports a broken GPU for 10 minutes (``RepairPolicies``).
            "featureGates": {"nodeRepair": True},
        }
        return {"settings": settings, "serviceAccount": {"name": ACCOUNT}, "replicas": 2}
    if chart is KUEUE:
        return {"managerConfig": {"controllerManagerConfigYaml": kueue_configuration(args.settings)}}
    if chart is DEVICES:
        # The chart's default is a label of feature discovery, which is not installed; nodes have our label.
        terms = {"nodeSelectorTerms": [{"matchExpressions": [has_stack_label]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        return {"affinity": affinity, "tolerations": GPU_TOLERATIONS}
    if chart is GPU_METRICS:
        # A ServiceMonitor needs the Prometheus operator, which the stack does not install.
        labels = {LABEL_STACK: args.scope.stack}
        return {"nodeSelector": labels, "tolerations": GPU_TOLERATIONS, "serviceMonitor": {"enabled": False}}
    return {}


def kueue_configuration(settings: Kubernetes) -> str:
    """Return Kueue's configuration, as JSON, which is valid YAML; it replaces the chart's.

    Kueue's own pauses double up to an hour and stay there: their number falls only when a job is deactivated
    (kueue, ``UpdateRequeueState``), so a job would ask for capacity for 41 % of a day without any. With
    ``recoveryTimeout`` 0 a run with ``nodes.min`` keeps its survivors. The rest are the chart's values.
    """
    assert settings.create is not None
    wait = {
        "timeout": f"{settings.create.job_start_minutes}m",
        "recoveryTimeout": "0s",
        "requeuingStrategy": {
            "backoffLimitCount": settings.create.job_starts,
            "backoffBaseSeconds": settings.create.job_pause_seconds,
            "backoffMaxSeconds": settings.create.job_pause_seconds,
        },
    }
    kinds = ("Job.batch", "Workload.kueue.x-k8s.io", "LocalQueue.kueue.x-k8s.io")
    return json.dumps(
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": ":8081"},
            "metrics": {"bindAddress": ":8443"},
            "webhook": {"port": 9443},
            "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
            "controller": {"groupKindConcurrency": dict.fromkeys(kinds, 5)},
            "clientConnection": {"qps": 300, "burst": 500},
            "waitForPodsReady": wait,
            "integrations": {"frameworks": ["batch/job", "trainer.kubeflow.org/trainjob"]},
        }
    )
