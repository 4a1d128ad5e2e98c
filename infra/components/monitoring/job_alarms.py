"""Alarms of a training job, in addition to those of its capacity group."""

from __future__ import annotations

from collections.abc import Iterator

from contracts import names
from infra.components.monitoring.alarm_spec import FIVE_MINUTES, AlarmSpec, group_dimensions


def alarms(
    stack: str, job: str, *, has_volume: bool = False, has_deadline: bool = False, has_budget: bool = False
) -> Iterator[AlarmSpec]:
    """Yield the alarms of a job: failures, and those of its volume, deadline and budget if it has them."""
    dimensions = {"group": job, "stack": stack}
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
        yield AlarmSpec(
            f"{job}-{alarm}",
            f"The job {job} {description}; the log of the instances has the reason.",
            names.INSTANCE_NAMESPACE,
            metric,
            dimensions,
            "Sum",
            threshold=1,
            period_seconds=FIVE_MINUTES,
        )
    if has_volume:
        yield AlarmSpec(
            f"{job}-volume-full",
            f"Less than 10 % of the data volume of {job} is free. Raise volumeGiB or delete unused files.",
            names.INSTANCE_NAMESPACE,
            names.METRIC_FREE_SPACE,
            dimensions,
            "Minimum",
            threshold=10,
            period_seconds=FIVE_MINUTES,
            below=True,
        )
    if has_deadline:
        yield _controller_alarm(
            stack,
            job,
            "deadline",
            names.METRIC_DEADLINE_AT_RISK,
            f"The job {job} cannot meet its deadline, or reports no progress to tell. The controller's log "
            "has the reason.",
        )
    if has_budget:
        yield _controller_alarm(
            stack,
            job,
            "budget",
            names.METRIC_BUDGET_AT_RISK,
            f"The budget of the job {job} is nearly spent, will not suffice for the remaining work, or is "
            "spent and the job is stopped. The controller's log has the reason.",
        )


def _controller_alarm(stack: str, job: str, alarm: str, metric: str, description: str) -> AlarmSpec:
    return AlarmSpec(
        f"{job}-{alarm}",
        description,
        names.METRIC_NAMESPACE,
        metric,
        group_dimensions(stack, job, names.SERVICE_CONTROLLER),
        "Maximum",
        threshold=1,
    )
