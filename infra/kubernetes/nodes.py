"""Nodes: what Karpenter buys for an entry, and how many GPUs all jobs may hold (Kueue)."""

from __future__ import annotations

from collections.abc import Sequence

from infra.kubernetes import pod_resources, pods
from infra.kubernetes.place import GPU, ClusterPlace, Object
from infra.schema import Service, Training
from infra.schema.jobs.matrix import count
from infra.schema.work import Work


def pool(entry: Service | Training, place: ClusterPlace) -> list[Object]:
    """Return an entry's NodePool and EC2NodeClass.

    Spot comes first where both are allowed: Karpenter prefers it, and leaves out what AWS refused.
    Nodes of jobs go when they are empty and for no other reason; a service's may be packed, one at a time.
    """
    name = place.cluster_name(entry.name)
    is_job = isinstance(entry, Training)
    template: Object = {
        "metadata": {"labels": place.node_labels(entry.name)},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name},
            "requirements": _requirements(entry),
            "taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}],
            "expireAfter": "Never",
            "terminationGracePeriod": f"{pods.NODE_GRACE_SECONDS}s",
        },
    }
    disruption: Object = {
        "consolidationPolicy": "WhenEmpty" if is_job else "WhenEmptyOrUnderutilized",
        "consolidateAfter": "60s",
        # With a grace period a node may drift though its pods say do-not-disrupt.
        "budgets": [
            {"nodes": "0", "reasons": ["Drifted", "Underutilized"]},
            {"nodes": "100%", "reasons": ["Empty"]},
        ]
        if is_job
        else [{"nodes": "1"}],
    }
    return [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": place.metadata(name, entry.name, in_cluster=True),
            "spec": {
                "template": template,
                "disruption": disruption,
                "limits": {GPU: str(_most_gpus(entry))},
            },
        },
        _node_class(name, entry, place),
    ]


def queues(jobs: Sequence[Training], place: ClusterPlace) -> list[Object]:
    """Return Kueue's objects: one queue for all jobs, which wait in it until their GPUs fit the quota.

    A job that asks for what a queue does not cover is never let in, so processors and memory are covered,
    too, with as much as the GPUs can need.
    """
    if not jobs:
        return []
    version, name = "kueue.x-k8s.io/v1beta2", place.cluster_name("jobs")
    gpus = place.cluster.quota_gpus
    asked = [pod_resources.of_job(job.capacity.types) for job in jobs]
    millicpu = max(-(-one.millicpu // one.gpus) for one in asked) * gpus
    memory = max(-(-one.memory_mib // one.gpus) for one in asked) * gpus
    quotas = {GPU: gpus, "cpu": f"{millicpu}m", "memory": f"{memory}Mi"}
    group: Object = {
        "coveredResources": [*quotas],
        "flavors": [
            {
                "name": name,
                "resources": [{"name": key, "nominalQuota": quota} for key, quota in quotas.items()],
            }
        ],
    }
    ours = {"matchLabels": {"kubernetes.io/metadata.name": place.namespace}}
    return [
        {
            "apiVersion": version,
            "kind": "ResourceFlavor",
            "metadata": place.metadata(name, in_cluster=True),
            "spec": {},
        },
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": place.metadata(name, in_cluster=True),
            "spec": {"namespaceSelector": ours, "resourceGroups": [group]},
        },
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": place.metadata(place.namespace),
            "spec": {"clusterQueue": name},
        },
    ]


def capacity_types(entry: Work) -> list[str]:
    """Return how an entry's nodes may be bought: spot, and on-demand where a fallback may."""
    if entry.capacity.spot_percentage == 0:
        return ["on-demand"]
    return ["spot", "on-demand"] if entry.capacity.fallback.enabled else ["spot"]


def _requirements(entry: Work) -> list[Object]:
    capacity = entry.capacity
    architecture = "arm64" if capacity.architecture == "arm64" else "amd64"
    wanted = {
        "node.kubernetes.io/instance-type": list(capacity.types),
        "karpenter.sh/capacity-type": capacity_types(entry),
        "kubernetes.io/arch": [architecture],
        "kubernetes.io/os": ["linux"],
    }
    return [{"key": key, "operator": "In", "values": values} for key, values in wanted.items()]


def _most_gpus(entry: Service | Training) -> int:
    """Return the most GPUs of an entry: as the bound of its group would allow, each node of a run."""
    gpus = pod_resources.of_job(entry.capacity.types).gpus
    most = entry.capacity.maximum
    if isinstance(entry, Training):
        alone = entry.matrix is None or entry.shares_group
        return most * gpus * entry.nodes * (1 if alone else count(entry.matrix or {}))
    return most if entry.capacity.unit == "gpus" else most * gpus


def _node_class(name: str, entry: Work, place: ClusterPlace) -> Object:
    cluster = place.cluster
    # EKS itself tags the cluster's own security group so.
    groups: list[Object] = [{"tags": {"aws:eks:cluster-name": cluster.cluster}}]
    groups += [{"id": group} for group in place.security_groups]
    root: Object = {
        "volumeSize": f"{entry.capacity.root_volume_gib}Gi",
        "volumeType": "gp3",
        "encrypted": True,
        "deleteOnTermination": True,
    }
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": place.metadata(name, entry.name, in_cluster=True),
        "spec": {
            "amiSelectorTerms": [{"alias": cluster.node_image}],
            **(
                {"instanceProfile": place.node_profile} if place.node_profile else {"role": cluster.node_role}
            ),
            "subnetSelectorTerms": [{"id": subnet} for subnet in place.subnets],
            "securityGroupSelectorTerms": groups,
            "blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": True, "ebs": root}],
            # One hop ends on the node: no pod reaches the role of its node.
            "metadataOptions": {
                "httpEndpoint": "enabled",
                "httpTokens": "required",
                "httpPutResponseHopLimit": 1,
            },
            "tags": {"gpu-spot:stack": place.stack, "gpu-spot:group": entry.name},
        },
    }
