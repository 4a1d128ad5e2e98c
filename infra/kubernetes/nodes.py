"""Nodes of entries (Karpenter) and the GPU quota of all jobs (Kueue)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.kubernetes import pod_resources, pods
from infra.kubernetes.context import GPU, ClusterContext, Manifest
from infra.schema import Service, Training
from infra.schema.jobs.matrix import count
from infra.schema.work import Work

_NEVER: Final[Manifest] = {"nodes": "0", "reasons": ["Drifted", "Underutilized"]}
_RETURN_TO_SPOT: Final[list[Manifest]] = [
    {"nodes": "0", "reasons": ["Drifted"]},
    {"nodes": "0", "reasons": ["Underutilized"], "schedule": "10 */6 * * *", "duration": "5h50m"},
]
"""Ten minutes every six hours, in UTC, in which Karpenter may replace On-Demand nodes by cheaper ones: a job
moves once in them, because a start, an interruption and another start take as long. Source: karpenter,
``IsActive`` and ``GetAllowedDisruptionsByReason`` (the minimum of the active budgets)."""


def node_pool(entry: Service | Training, context: ClusterContext) -> list[Manifest]:
    """Return an entry's NodePool and EC2NodeClass.

    If both purchase options are allowed, Karpenter prefers Spot and skips offerings without capacity. Nodes
    of jobs are removed only when empty, or when a job returns to Spot; nodes of a service may be
    consolidated, one at a time.

    A node of a service has a ``terminationGracePeriod``, before whose end Karpenter deletes pods that their
    disruption budget protects. A job's node has none: its pods are evicted at once, and a deletion has no
    condition ``DisruptionTarget``, without which a killed pod counts as a failure.
    """
    name = context.cluster_name(entry.name)
    template: Manifest = {
        "metadata": {"labels": context.node_labels(entry.name)},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name},
            "requirements": _requirements(entry),
            "taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}],
            "expireAfter": "Never",
        },
    }
    disruption: Manifest = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "60s",
        "budgets": [{"nodes": "1"}],
    }
    if isinstance(entry, Training):
        disruption |= _disruption_of_job(entry)
    else:
        template["spec"]["terminationGracePeriod"] = f"{pods.NODE_GRACE_SECONDS}s"
    return [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": context.metadata(name, entry.name, in_cluster=True),
            "spec": {"template": template, "disruption": disruption, "limits": {GPU: str(max_gpus(entry))}},
        },
        _node_class(name, entry, context),
    ]


def _disruption_of_job(job: Training) -> Manifest:
    """Return when Karpenter may take a job's nodes from it.

    A job on On-Demand returns to Spot: Karpenter replaces the node only by a cheaper one, which is Spot if
    the pool allows both, and takes it away when the replacement is ready; without Spot capacity nothing
    changes (karpenter, ``consolidation.go``, ``computeConsolidation``). It evicts the pod as at a notice. A
    Spot node it does not replace. Of several nodes so many move at once that ``nodes.min`` stay; where all
    need each other none moves, because each move would restart all ranks.
    """
    returns = len(capacity_types(job)) > 1 and not job.nodes.needs_all
    budgets = [*(_RETURN_TO_SPOT if returns else [_NEVER]), {"nodes": "100%", "reasons": ["Empty"]}]
    if returns and job.nodes.max > 1:
        budgets.append({"nodes": str(job.nodes.max - job.nodes.min), "reasons": ["Underutilized"]})
    return {"consolidationPolicy": "WhenEmptyOrUnderutilized" if returns else "WhenEmpty", "budgets": budgets}


def queues(jobs: Sequence[Training], context: ClusterContext) -> list[Manifest]:
    """Return Kueue's objects: one queue in which all jobs wait until their GPUs fit the quota.

    Kueue never admits a job that requests a resource the queue does not cover, so CPU and memory are covered
    with as much as the GPUs can need.
    """
    if not jobs:
        return []
    version, name = "kueue.x-k8s.io/v1beta2", context.cluster_name("jobs")
    gpus = context.cluster.quota_gpus
    requests = [pod_resources.job_requests(job.capacity.types) for job in jobs]
    millicpu = max(-(-request.millicpu // request.gpus) for request in requests) * gpus
    memory = max(-(-request.memory_mib // request.gpus) for request in requests) * gpus
    quotas = {GPU: gpus, "cpu": f"{millicpu}m", "memory": f"{memory}Mi"}
    group: Manifest = {
        "coveredResources": [*quotas],
        "flavors": [
            {
                "name": name,
                "resources": [{"name": key, "nominalQuota": quota} for key, quota in quotas.items()],
            }
        ],
    }
    namespace_selector = {"matchLabels": {"kubernetes.io/metadata.name": context.namespace}}
    return [
        {
            "apiVersion": version,
            "kind": "ResourceFlavor",
            "metadata": context.metadata(name, in_cluster=True),
            "spec": {},
        },
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": context.metadata(name, in_cluster=True),
            "spec": {"namespaceSelector": namespace_selector, "resourceGroups": [group]},
        },
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": context.metadata(context.namespace),
            "spec": {"clusterQueue": name},
        },
    ]


def capacity_types(entry: Work) -> list[str]:
    """Return the capacity types of an entry's nodes: Spot, and On-Demand with a fallback."""
    if entry.capacity.spot_percentage == 0:
        return ["on-demand"]
    return ["spot", "on-demand"] if entry.capacity.fallback.enabled else ["spot"]


def _requirements(entry: Work) -> list[Manifest]:
    capacity = entry.capacity
    architecture = "arm64" if capacity.architecture == "arm64" else "amd64"
    values_by_key = {
        "node.kubernetes.io/instance-type": list(capacity.types),
        "karpenter.sh/capacity-type": capacity_types(entry),
        "kubernetes.io/arch": [architecture],
        "kubernetes.io/os": ["linux"],
    }
    return [{"key": key, "operator": "In", "values": values} for key, values in values_by_key.items()]


def max_gpus(entry: Service | Training) -> int:
    """Return the maximum GPUs of an entry: those of its group's maximum, times the nodes of a run."""
    gpus = pod_resources.job_requests(entry.capacity.types).gpus
    max_slots = entry.capacity.maximum
    if isinstance(entry, Training):
        alone = entry.matrix is None or entry.shares_group
        return max_slots * gpus * entry.nodes.max * (1 if alone else count(entry.matrix or {}))
    return max_slots if entry.capacity.unit == "gpus" else max_slots * gpus


def _node_class(name: str, entry: Work, context: ClusterContext) -> Manifest:
    cluster = context.cluster
    role = {"instanceProfile": context.node_profile} if context.node_profile else {"role": cluster.node_role}
    # EKS's tag of the cluster's security group.
    groups: list[Manifest] = [{"tags": {"aws:eks:cluster-name": cluster.cluster}}]
    groups += [{"id": group} for group in context.security_groups]
    root: Manifest = {
        "volumeSize": f"{entry.capacity.root_volume_gib}Gi",
        "volumeType": "gp3",
        "throughput": entry.capacity.root_volume_throughput_mib or pods.ROOT_THROUGHPUT_MIB,
        "encrypted": True,
        "deleteOnTermination": True,
        **({"kmsKeyID": context.kms_key_arn} if context.kms_key_arn else {}),
    }
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": context.metadata(name, entry.name, in_cluster=True),
        "spec": {
            "amiSelectorTerms": [{"alias": cluster.node_image}],
            **role,
            "subnetSelectorTerms": [{"id": subnet} for subnet in context.subnets],
            "securityGroupSelectorTerms": groups,
            # By default Karpenter ignores the instance store: for images and emptyDirs (GPU_SPOT_SCRATCH).
            "instanceStorePolicy": "RAID0",
            "kubelet": pod_resources.KUBELET,
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": True, "ebs": root}],
            # One hop ends on the node: pods cannot get the credentials of its role.
            "metadataOptions": {
                "httpEndpoint": "enabled",
                "httpTokens": "required",
                "httpPutResponseHopLimit": 1,
            },
            "tags": context.tags(entry.name),
        },
    }
