"""Names by which the program, the functions and the instances know each other.

``infra`` and ``userdata`` import them: a name that two rooms must agree on stands here once.
"""

from __future__ import annotations

from typing import Final

METRIC_NAMESPACE: Final = "gpu-spot"
"""The controller's own, which its alarms read; instances may not put metrics there."""
INSTANCE_NAMESPACE: Final = "gpu-spot/instances"
"""What boot, the node agent and the CloudWatch agent report; instances may put metrics only there. A line in
embedded metric format may name any namespace: CloudWatch Logs makes the metric, not the instance's role."""

METRIC_DEADLINE: Final = "DeadlineTroubles"
"""The controller's of a job with a deadline: it cannot be met, or nobody knows whether it can."""
METRIC_BUDGET: Final = "BudgetTroubles"
"""The controller's of a job with a budget: most of it is spent, it will not do, or it is spent."""
METRIC_JOB_FAILURES: Final = "JobFailures"
METRIC_FREE_SPACE: Final = "DataVolumeFree"
"""Percent of a job's data volume."""
METRIC_JOB_STALLS: Final = "JobStalls"
METRIC_HOST_FAULTS: Final = "HostFaults"
JOB_METRICS: Final = (METRIC_JOB_FAILURES, METRIC_JOB_STALLS, METRIC_HOST_FAULTS)
"""What the node agent counts of a training job, each an alarm: it has failed for good, was stopped because it
hung, or a host was to blame and is replaced."""

METRIC_QUEUE_READY: Final = "QueueReady"
METRIC_QUEUE_TAKEN: Final = "QueueTaken"
METRIC_QUEUE_OLDEST: Final = "QueueOldest"
METRIC_QUEUE_ARRIVING: Final = "QueueArriving"
METRIC_QUEUE_LEAVING: Final = "QueueLeaving"
METRIC_QUEUE_READERS: Final = "QueueReaders"
"""The queue watcher's: a `Backlog` in metrics. Where it could not look, none of them is there."""
METRIC_QUEUE_UNSEEN: Final = "QueueUnseen"
"""1 where the queue watcher could not look, else 0."""
METRIC_WORKERS_READY: Final = "WorkersReady"
METRIC_WORKERS_DRAINING: Final = "WorkersDraining"
METRIC_WORKERS_SILENT: Final = "WorkersSilent"
"""The health checker's: a service's workers by where they run, in the dimension ``origin``."""
ORIGIN: Final = "origin"
ORIGIN_AWS: Final = "aws"
ORIGIN_ON_PREMISES: Final = "on-premises"
METRIC_HEALTH_INCIDENTS: Final = "HealthIncidents"
"""The health checker's: what stands that needs a person."""
METRIC_HEALTH_FINDINGS: Final = "HealthFindings"
"""The same of hosts under a verdict; what is done about most of them is done by itself."""
METRIC_HEALTH_ERRORS: Final = "HealthErrors"
"""1 where the health checker could not look after a group."""
METRIC_SCALING_TARGET: Final = "ScalingTarget"
METRIC_SCALING_WANTED: Final = "ScalingWanted"
"""The scaler's, in slots of the group: the target it decided on, and what the load alone asks, where that is
known."""
METRIC_SCALING_BLIND: Final = "ScalingBlind"
METRIC_SCALING_STALE: Final = "ScalingStale"
METRIC_SCALING_CEILING: Final = "ScalingCeiling"
"""1 where the load is not known, where nobody knows what workers do, where more is wanted than is allowed."""
METRIC_SCALING_ERRORS: Final = "ScalingErrors"
"""1 where the scaler could not look after a group."""
METRIC_TENANT_CPU_SECONDS: Final = "TenantCpuSeconds"
METRIC_TENANT_CPU_BORROWED: Final = "TenantCpuBorrowedSeconds"
METRIC_TENANT_CPU_LENT: Final = "TenantCpuLentSeconds"
METRIC_TENANT_MEMORY: Final = "TenantMemory"
METRIC_TENANT_RESTARTS: Final = "TenantRestarts"
"""A shared host's, by tenant, once a minute: seconds of CPU in use, those of them that were others', its own
that others used, memory in MB, ends of its container that nobody asked for."""
TENANT: Final = "tenant"
"""The dimension, beside ``group`` and ``stack``."""
METRIC_HOURLY_COST: Final = "HourlyCost"
METRIC_HOURLY_COST_ON_DEMAND: Final = "HourlyCostOnDemand"
"""The controller's: US dollars an hour of a group's instances, and what they would cost on-demand."""

SERVICE_CONTROLLER: Final = "controller"
SERVICE_HEALTH: Final = "health"
SERVICE_QUEUES: Final = "queues"
SERVICE_SCALER: Final = "scaler"
"""What the functions call themselves in logs and, as the dimension ``service``, in metrics."""

TAG_STACK: Final = "gpu-spot:stack"
TAG_GROUP: Final = "gpu-spot:group"
TAG_SIDE: Final = "gpu-spot:side"

ENV_STACK: Final = "GPU_SPOT_STACK"
ENV_PARAMETER_ROOT: Final = "GPU_SPOT_PARAMETER_ROOT"
ENV_MEMORY_TABLE: Final = "GPU_SPOT_MEMORY_TABLE"
ENV_REGISTRY_TABLE: Final = "GPU_SPOT_REGISTRY_TABLE"
ENV_QUEUE_URL: Final = "GPU_SPOT_QUEUE_URL"
ENV_TOPIC: Final = "GPU_SPOT_TOPIC"
ENV_QUEUES: Final = "GPU_SPOT_QUEUES"

CONTROLLER_HANDLER: Final = "lambdas.handlers.controller.handler"
HEALTH_HANDLER: Final = "lambdas.handlers.health.handler"
QUEUES_HANDLER: Final = "lambdas.handlers.queues.handler"
SCALER_HANDLER: Final = "lambdas.handlers.scaler.handler"

MEMORY_KEY: Final = "group"
REGISTRY_KEY: Final = "group"
REGISTRY_SORT_KEY: Final = "worker"
REGISTRY_TTL: Final = "expires"

PARAMETER_CONFIG: Final = "config"
PARAMETER_TARGET: Final = "target"
PARAMETER_CONTROL: Final = "control"
PARAMETER_FINISHED: Final = "finished"
PARAMETER_PREPARED: Final = "prepared"
"""Of a group that prepares a dataset: the one of which a snapshot is there."""
PARAMETER_HEALTH: Final = "health"
"""A service's settings for the health checker."""
PARAMETER_SCALING: Final = "scaling"
"""Of a service that scales: its settings for the scaler, which then alone writes ``target``."""
PARAMETER_WISHES: Final = "wishes"
"""Which instances the health checker wants replaced."""
PARAMETER_RELEASE: Final = "release"
"""From what a service's workers are to be started, as the program wants it."""
PARAMETER_ROLLING: Final = "rolling"
"""What the health checker asks of the controller while it rolls a release out."""

SUSPENDED_BY_US: Final = ("AZRebalance",)
"""Processes of our Auto Scaling groups that the program suspends; another that is suspended is an alarm."""


def tensorboard(stack: str) -> str:
    """Return the ``Name`` of what shows TensorBoard: a launch template, and the instance started from it."""
    return f"gpu-spot-{stack}-tensorboard"


def parameter_root(stack: str) -> str:
    """Return the Parameter Store path under which the groups of ``stack`` stand, without a trailing slash."""
    return f"/gpu-spot/{stack}/groups"


def group_parameter(stack: str, group: str, leaf: str) -> str:
    """Return the full name of one parameter of a group; ``leaf`` is one of the ``PARAMETER_*`` names."""
    return f"{parameter_root(stack)}/{group}/{leaf}"


def on_premises_partition(group: str) -> str:
    """Return the registry's partition for a group's workers elsewhere: the only one that they may write."""
    return f"{group}@on-premises"


def health_memory(group: str) -> str:
    """Return the key of the memory table under which the health checker remembers a group."""
    return f"{group}@health"


def scaling_memory(group: str) -> str:
    """Return the key of the memory table under which the scaler remembers a group."""
    return f"{group}@scaling"


def queue_partition(group: str) -> str:
    """Return the registry's partition for how a group's queue stands."""
    return f"{group}@queue"


def release_partition(group: str) -> str:
    """Return the registry's partition for what a group's workers are started from."""
    return f"{group}@release"
