"""Names shared by infra, lambdas and userdata, each defined once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

METRIC_NAMESPACE: Final = "gpu-spot"
"""Namespace of the functions' metrics, read by alarms; instances may not publish to it."""
INSTANCE_NAMESPACE: Final = "gpu-spot/instances"
"""Namespace of metrics from boot, node agent and CloudWatch agent; instances may publish to no other.
Embedded metric format can still name any namespace: CloudWatch Logs creates the metric, not the instance's
role."""

METRIC_INTERRUPTED_INSTANCES: Final = "InterruptedInstances"
"""Instances of the primary group with a termination deadline; emitted by the controller."""
METRIC_UNDECIDED_SECONDS: Final = "UndecidedSeconds"
"""Of a function: seconds since the oldest decision of a group."""
METRIC_READ_ERRORS: Final = "ReadErrors"
"""Reads of a group's state that failed or returned invalid data; emitted by the controller."""
METRIC_DEADLINE_AT_RISK: Final = "DeadlineAtRisk"
"""1 if a job cannot meet its deadline or reports no progress to tell from; emitted by the controller."""
METRIC_BUDGET_AT_RISK: Final = "BudgetAtRisk"
"""Above 0 if a job's budget is nearly spent, will not suffice or is spent; emitted by the controller."""
METRIC_ON_DEMAND_ONLY: Final = "OnDemandOnly"
"""1 if a group has run On-Demand alone for longer than its policy expected; emitted by the controller."""
METRIC_BOOT_FAILURES: Final = "BootFailures"
METRIC_JOB_FAILURES: Final = "JobFailures"
METRIC_FREE_SPACE: Final = "DataVolumeFree"
"""Free space of the data volume in percent; emitted by the node agent."""
METRIC_JOB_STALLS: Final = "JobStalls"
METRIC_HOST_FAULTS: Final = "HostFaults"
JOB_METRICS: Final = (METRIC_JOB_FAILURES, METRIC_JOB_STALLS, METRIC_HOST_FAULTS)
"""Counts of a training job, emitted by the node agent: it failed permanently, it hung and was stopped, or a
host caused a failure and is replaced. Each has an alarm."""

METRIC_QUEUE_READY: Final = "QueueReady"
METRIC_QUEUE_IN_FLIGHT: Final = "QueueInFlight"
METRIC_QUEUE_OLDEST_MESSAGE_AGE: Final = "QueueOldestMessageAge"
METRIC_QUEUE_PUBLISH_RATE: Final = "QueuePublishRate"
METRIC_QUEUE_ACK_RATE: Final = "QueueAckRate"
METRIC_QUEUE_CONSUMERS: Final = "QueueConsumers"
"""A `QueueState`, emitted by the queue watcher; missing if the queue is unreachable."""
METRIC_QUEUE_WORKERS: Final = "QueueWorkers"
"""Workers for a load, emitted by the queue watcher if KEDA scales by it."""
METRIC_QUEUE_UNREACHABLE: Final = "QueueUnreachable"
"""1 if the queue watcher could not read the queue's state, else 0."""
METRIC_PROXIES_UNREADABLE: Final = "ProxiesUnreadable"
"""Proxies of a service whose requests are unknown, at least 1 if no proxy can be read; emitted by the queue
watcher."""
METRIC_WORKERS_READY: Final = "WorkersReady"
METRIC_WORKERS_DRAINING: Final = "WorkersDraining"
METRIC_WORKERS_NOT_REPORTING: Final = "WorkersNotReporting"
"""A service's workers by where they run (dimension ``origin``); emitted by the health checker."""
METRIC_REQUESTS_REFUSED: Final = "RequestsRefused"
"""Requests per second that workers did not run because they could not meet their deadline, by ``origin``."""
METRIC_REQUESTS_REFUSED_SHARE: Final = "RequestsRefusedShare"
"""Those in percent of all requests that the workers ended or refused; missing without requests."""
METRIC_WORKERS_STOPPED: Final = "WorkersStopped"
"""Workers that take no requests because their replies cannot be published, by ``reason``; missing at 0."""
STOP_REASON: Final = "reason"
STOP_REASONS: Final = ("memory", "disk", "connection", "other")
"""Values of the dimension ``reason``: what the broker lacks, or that there is no connection to it."""
ORIGIN: Final = "origin"
ORIGIN_AWS: Final = "aws"
ORIGIN_ON_PREMISES: Final = "on-premises"
METRIC_HEALTH_INCIDENTS: Final = "HealthIncidents"
"""Open incidents, which need an operator; emitted by the health checker."""
METRIC_HEALTH_FINDINGS: Final = "HealthFindings"
"""Hosts with a symptom; the health checker remedies most of them itself."""
METRIC_HEALTH_ERRORS: Final = "HealthErrors"
"""1 if the health checker could not check a group or remedy a symptom in it."""
METRIC_SCALING_TARGET: Final = "ScalingTarget"
METRIC_SCALING_DESIRED: Final = "ScalingDesired"
"""The target that the scaler set, and the target for the load alone (if known), in slots of the group."""
METRIC_SCALING_LOAD_UNKNOWN: Final = "ScalingLoadUnknown"
METRIC_SCALING_THROUGHPUT_UNKNOWN: Final = "ScalingThroughputUnknown"
METRIC_SCALING_AT_MAXIMUM: Final = "ScalingAtMaximum"
"""1 if the load is unknown; if the throughput is unknown; if the load needs more than the maximum."""
METRIC_SCALING_ERRORS: Final = "ScalingErrors"
"""1 if the scaler could not scale a group."""
REQUEST_LOG_NAMESPACE: Final = "gpu-spot/requests"
"""Namespace of the metrics that metric filters of a request log publish, read by the scaler.

CloudWatch Logs publishes them: no role needs the permission.
"""
KUBERNETES_NAMESPACE: Final = "gpu-spot/kubernetes"
"""Namespace of the metrics that metric filters of a created cluster's audit log publish."""
METRIC_TENANT_CPU_SECONDS: Final = "TenantCpuSeconds"
METRIC_TENANT_CPU_BORROWED: Final = "TenantCpuBorrowedSeconds"
METRIC_TENANT_CPU_LENT: Final = "TenantCpuLentSeconds"
METRIC_TENANT_CPU_THROTTLED: Final = "TenantCpuThrottledSeconds"
METRIC_TENANT_MEMORY: Final = "TenantMemory"
METRIC_TENANT_RESTARTS: Final = "TenantRestarts"
METRIC_TENANT_WAITING: Final = "TenantWaiting"
"""Per tenant of a shared host, once a minute: CPU seconds used, borrowed from and lent to other tenants,
memory in MB, unexpected exits of the tenant's container; of a capped or limited tenant also the seconds that
this delayed it, summed over CPUs; 1 if the tenant does not run as the list says, else 0."""
METRIC_TENANT_CPU_RESERVED: Final = "TenantCpuReservedSeconds"
METRIC_TENANT_GPU_RESERVED: Final = "TenantGpuReservedSeconds"
METRIC_TENANT_MEMORY_RESERVED: Final = "TenantMemoryReservedGibHours"
"""Per tenant whose container runs, once a minute: seconds of its CPUs and GPUs, GiB hours of its memory. A
MIG instance is the part of a GPU whose memory it has."""
METRIC_HOST_CPU: Final = "HostCpuSeconds"
METRIC_HOST_GPU: Final = "HostGpuSeconds"
METRIC_HOST_MEMORY: Final = "HostMemoryGibHours"
"""The same of a shared host as a whole: dimensions ``group`` and ``stack``."""
TENANT: Final = "tenant"
"""Dimension of tenant metrics, in addition to ``group`` and ``stack``."""
METRIC_HTTP_REQUESTS: Final = "HttpRequests"
METRIC_HTTP_REFUSED: Final = "HttpRefused"
METRIC_HTTP_CUT: Final = "HttpCut"
METRIC_HTTP_REPEATED: Final = "HttpRepeated"
METRIC_HTTP_WORKER_ERRORS: Final = "HttpWorkerErrors"
"""Counts of a proxy since it last sent them, emitted by its agent, once a minute or more often, also at 0:
requests received; of these answered with 503 by the proxy, lost with their worker, sent to another worker
after theirs was lost, and answered with a status of 5xx by a worker. Dimensions ``group`` and ``stack``."""
METRIC_HTTP_WAITING: Final = "HttpWaiting"
METRIC_HTTP_IN_FLIGHT: Final = "HttpInFlight"
METRIC_HTTP_WORKERS_READY: Final = "HttpWorkersReady"
"""Gauges of a proxy, with the same dimensions: requests that wait, requests at workers, and workers that take
requests."""
METRIC_GPU_UTILIZATION: Final = "GpuUtilization"
METRIC_GPU_MEMORY_UTILIZATION: Final = "GpuMemoryUtilization"
METRIC_GPU_MEMORY_USED: Final = "GpuMemoryUsed"
METRIC_GPU_TEMPERATURE: Final = "GpuTemperature"
METRIC_GPU_POWER: Final = "GpuPower"
"""Means of a minute by GPU, as NVML reports them, emitted by the node agent with ``group`` and ``stack``:
percent of the time in which a kernel ran, in which memory was read or written; MB; degrees Celsius; watts."""
METRIC_GPUS_LOST: Final = "GpusLost"
METRIC_XID_ERRORS: Final = "XidErrors"
METRIC_ECC_ERRORS: Final = "EccUncorrectedErrors"
METRIC_HOURLY_COST: Final = "HourlyCost"
METRIC_HOURLY_COST_ON_DEMAND: Final = "HourlyCostOnDemand"
"""US dollars an hour: a group's instances as billed, and at On-Demand prices; emitted by the controller."""

METRIC_SPOT: Final = "Spot"
METRIC_ON_DEMAND: Final = "OnDemand"
METRIC_SHORTAGE: Final = "Shortage"
METRIC_ABOVE_MAXIMUM: Final = "AboveMaximum"
METRIC_ALARM_CAUSES: Final = "AlarmCauses"
_ABOVE_ZERO: Final = (
    *(METRIC_SPOT, METRIC_ON_DEMAND, METRIC_SHORTAGE, METRIC_ABOVE_MAXIMUM, METRIC_ALARM_CAUSES),
    *(METRIC_INTERRUPTED_INSTANCES, METRIC_READ_ERRORS, METRIC_ON_DEMAND_ONLY),
    *(METRIC_DEADLINE_AT_RISK, METRIC_BUDGET_AT_RISK),
    *(METRIC_WORKERS_DRAINING, METRIC_WORKERS_NOT_REPORTING),
    *(METRIC_REQUESTS_REFUSED, METRIC_REQUESTS_REFUSED_SHARE),
    *(METRIC_HEALTH_INCIDENTS, METRIC_HEALTH_FINDINGS, METRIC_HEALTH_ERRORS),
    *(METRIC_SCALING_LOAD_UNKNOWN, METRIC_SCALING_THROUGHPUT_UNKNOWN),
    *(METRIC_SCALING_AT_MAXIMUM, METRIC_SCALING_ERRORS),
    *(METRIC_GPUS_LOST, METRIC_XID_ERRORS, METRIC_ECC_ERRORS),
    *(METRIC_TENANT_WAITING, METRIC_TENANT_RESTARTS, METRIC_TENANT_CPU_THROTTLED),
)
_LOGGED_ONLY: Final = (
    *(METRIC_TENANT_CPU_SECONDS, METRIC_TENANT_CPU_BORROWED, METRIC_TENANT_CPU_LENT, METRIC_TENANT_MEMORY),
    *(METRIC_TENANT_CPU_RESERVED, METRIC_TENANT_GPU_RESERVED, METRIC_TENANT_MEMORY_RESERVED),
    *(METRIC_HOST_CPU, METRIC_HOST_GPU, METRIC_HOST_MEMORY),
)


def is_series(metric: str, values: Sequence[float]) -> bool:
    """Return whether values become a CloudWatch metric, or only a field of the log line.

    CloudWatch charges a metric for each hour in which it has a value. What is 0 unless something is wrong has
    none then: its alarms and graphs take a missing value as 0. What tenants used is in the log.
    Source: CloudWatch pricing, "custom metrics", prorated by the hour.
    """
    return metric not in _LOGGED_ONLY and (metric not in _ABOVE_ZERO or any(values))


SERVICE_BROKER_USERS: Final = "broker-users"
SERVICE_CONTROLLER: Final = "controller"
SERVICE_HEALTH: Final = "health"
SERVICE_QUEUES: Final = "queues"
SERVICE_SCALER: Final = "scaler"
"""Service names of the functions in logs and in the metric dimension ``service``."""

TAG_STACK: Final = "gpu-spot:stack"
TAG_GROUP: Final = "gpu-spot:group"
TAG_GROUP_ROLE: Final = "gpu-spot:side"
"""Value of the tag."""
TAG_PROXY: Final = "gpu-spot:proxy"
"""Tag of the instances that are proxies of a service: its name. They lack `TAG_GROUP`, so that nothing takes
them for workers."""
PROXY_HEALTH_PATH: Final = "/gpu-spot/proxy"
"""Path that a proxy answers itself, with 200, while it takes requests: the load balancer's health check. It
does not depend on workers: without any the proxy answers 503 with ``Retry-After``."""

ENV_STACK: Final = "GPU_SPOT_STACK"
ENV_PARAMETER_ROOT: Final = "GPU_SPOT_PARAMETER_ROOT"
ENV_MEMORY_TABLE: Final = "GPU_SPOT_MEMORY_TABLE"
ENV_REGISTRY_TABLE: Final = "GPU_SPOT_REGISTRY_TABLE"
ENV_INSTANCE_ARNS: Final = "GPU_SPOT_INSTANCE_ARNS"
"""ARN of the account's instances in the Region, up to the instance id."""
ENV_QUEUE_URL: Final = "GPU_SPOT_QUEUE_URL"
ENV_TOPIC: Final = "GPU_SPOT_TOPIC"
ENV_QUEUES: Final = "GPU_SPOT_QUEUES"
ENV_BROKERS: Final = "GPU_SPOT_BROKERS"

BROKER_USERS_HANDLER: Final = "lambdas.handlers.broker_users.handler"
CONTROLLER_HANDLER: Final = "lambdas.handlers.controller.handler"
HEALTH_HANDLER: Final = "lambdas.handlers.health.handler"
QUEUES_HANDLER: Final = "lambdas.handlers.queues.handler"
SCALER_HANDLER: Final = "lambdas.handlers.scaler.handler"

MEMORY_KEY: Final = "group"
REGISTRY_KEY: Final = "group"
REGISTRY_SORT_KEY: Final = "worker"
TTL: Final = "expires"
"""Attribute of an item: when DynamoDB deletes it, in epoch seconds."""

PARAMETER_CONFIG: Final = "config"
PARAMETER_TARGET: Final = "target"
PARAMETER_CONTROL: Final = "control"
PARAMETER_FINISHED: Final = "finished"
PARAMETER_REQUEST: Final = "request"
"""The newest request for a run of a job with a schedule, by hand."""
PARAMETER_FIRING: Final = "firing"
"""The run that the schedule requests; of its own, so that neither request replaces the other."""
RUN_REQUESTS: Final = (PARAMETER_REQUEST, PARAMETER_FIRING)
PARAMETER_RUN: Final = "run"
"""The newest run of such a job, written by the controller."""
PARAMETER_PREPARED: Final = "prepared"
"""The dataset that has a snapshot, of a group that prepares it."""
PARAMETER_CHECKPOINTS: Final = "checkpoints"
"""The place of a job's checkpoints, which the program compares; nothing else reads it."""
PARAMETER_HEALTH: Final = "health"
"""A service's settings for the health checker."""
PARAMETER_SCALING: Final = "scaling"
"""A service's settings for the scaler; only the scaler then writes ``target``."""
PARAMETER_REPLACEMENT_REQUESTS: Final = "replacements"
"""Instances that the health checker requests to replace."""
PARAMETER_RELEASE: Final = "release"
"""A service's desired release."""
PARAMETER_ROLLOUT_REQUEST: Final = "rolling"
"""Request of the health checker to the controller during a rollout."""

SUSPENDED_BY_STACK: Final = ("AZRebalance",)
"""Processes that the stack suspends in its Auto Scaling groups; any other suspended process is an alarm."""


def tensorboard(stack: str) -> str:
    """Return the name of TensorBoard's launch template, also the ``Name`` tag of its instance."""
    return f"gpu-spot-{stack}-tensorboard"


def parameter_root(stack: str) -> str:
    """Return the Parameter Store path of the groups of ``stack``, without a trailing slash."""
    return f"/gpu-spot/{stack}/groups"


def group_parameter(stack: str, group: str, parameter: str) -> str:
    """Return the full name of a group's parameter; ``parameter`` is one of the ``PARAMETER_*`` names."""
    return f"{parameter_root(stack)}/{group}/{parameter}"


def on_premises_partition(group: str) -> str:
    """Return the name under which a group's on-premises workers are registered."""
    return f"{group}@on-premises"


VISITS: Final = ".visits"
"""Key, in place of a group, of when a function served its groups; no group's name begins so."""


def health_memory(group: str) -> str:
    """Return the key of the health checker's state of a group in the memory table."""
    return f"{group}@health"


def scaling_memory(group: str) -> str:
    """Return the key of the scaler's state of a group in the memory table."""
    return f"{group}@scaling"


def kubernetes_job_metric(stack: str, job: str, event: str) -> str:
    """Return the name of a metric of a Job in `KUBERNETES_NAMESPACE`.

    ``event`` is ``failures``, ``starts-failed`` (pods) or ``waits``.
    """
    return f"{stack}/{job}/{event}"


def request_metric(stack: str, group: str, measure: str) -> str:
    """Return a metric's name in `REQUEST_LOG_NAMESPACE`; ``measure`` is ``requests`` or ``seconds``.

    A metric with a default value has no dimensions. Source: CloudWatch Logs guide, metric filter concepts.
    """
    return f"{stack}/{group}/{measure}"


def queue_partition(group: str) -> str:
    """Return the registry's partition of the state of a group's queue."""
    return f"{group}@queue"


def proxy_partition(group: str) -> str:
    """Return the registry's group of the states of a service's proxies, see `registry.item.partition`."""
    return f"{group}@proxy"


def release_partition(group: str) -> str:
    """Return the registry's partition of the releases of a group's workers."""
    return f"{group}@release"
