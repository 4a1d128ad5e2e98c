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

TAG_STACK: Final = "gpu-spot:stack"
TAG_GROUP: Final = "gpu-spot:group"
TAG_SIDE: Final = "gpu-spot:side"

ENV_STACK: Final = "GPU_SPOT_STACK"
ENV_PARAMETER_ROOT: Final = "GPU_SPOT_PARAMETER_ROOT"
ENV_MEMORY_TABLE: Final = "GPU_SPOT_MEMORY_TABLE"
ENV_REGISTRY_TABLE: Final = "GPU_SPOT_REGISTRY_TABLE"
ENV_QUEUE_URL: Final = "GPU_SPOT_QUEUE_URL"

CONTROLLER_HANDLER: Final = "lambdas.handlers.controller.handler"

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
PARAMETER_WISHES: Final = "wishes"
"""Which instances the health checker wants replaced."""

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


def queue_partition(group: str) -> str:
    """Return the registry's partition for how a group's queue stands."""
    return f"{group}@queue"
