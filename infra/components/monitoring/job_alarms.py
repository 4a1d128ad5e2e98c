"""Alarms of a training job, in addition to those of its capacity group."""

from __future__ import annotations

from collections.abc import Iterator

from contracts import names
from infra.components.monitoring.alarm_spec import (
    FIVE_MINUTES,
    ONCE,
    AlarmSpec,
    Condition,
    of_function,
    of_instances,
)


def alarms(
    stack: str, job: str, *, has_volume: bool = False, has_deadline: bool = False, has_budget: bool = False
) -> Iterator[AlarmSpec]:
    """Yield the alarms of a job: failures, and those of its volume, deadline and budget if it has them."""
    instances, controller = of_instances(stack, job), of_function(stack, job, names.SERVICE_CONTROLLER)
    # The node agent emits each once. The job's state is in the job table.
    for alarm, metric, description in (
        ("failed", names.METRIC_JOB_FAILURES, "failed permanently and is not restarted"),
        (
            "stalled",
            names.METRIC_JOB_STALLS,
            "made no progress, was stopped and restarts from its last checkpoint",
        ),
        ("host-fault", names.METRIC_HOST_FAULTS, "failed because of its host, which is replaced"),
    ):
        words = f"The job {job} {description}; the log of the instances has the reason."
        yield AlarmSpec(f"{job}-{alarm}", words, instances, metric, ONCE)
    if has_volume:
        words = f"Less than 10 % of the data volume of {job} is free. Raise volumeGiB or delete unused files."
        condition = Condition("Minimum", 10, period_seconds=FIVE_MINUTES, below=True)
        yield AlarmSpec(f"{job}-volume-full", words, instances, names.METRIC_FREE_SPACE, condition)
    if has_deadline:
        yield AlarmSpec(
            f"{job}-deadline",
            f"The job {job} cannot meet its deadline, or reports no progress to tell. The controller's log "
            "has the reason.",
            controller,
            names.METRIC_DEADLINE_AT_RISK,
            Condition("Maximum"),
        )
    if has_budget:
        yield AlarmSpec(
            f"{job}-budget",
            f"The budget of the job {job} is nearly spent, will not suffice for the remaining work, or is "
            "spent and the job is stopped. The controller's log has the reason.",
            controller,
            names.METRIC_BUDGET_AT_RISK,
            Condition("Maximum"),
        )
