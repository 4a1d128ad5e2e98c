"""What wakes a person about a training job, beside what does about its group."""

from __future__ import annotations

from collections.abc import Iterator

from contracts import names
from infra.components.monitoring.alarm_spec import FIVE_MINUTES, AlarmSpec, group_dimensions


def alarms(
    stack: str, job: str, *, has_volume: bool = False, has_deadline: bool = False, has_budget: bool = False
) -> Iterator[AlarmSpec]:
    """Yield the alarms of a job: of its end, and of its volume, date and budget where it has them."""
    of_instances = {"group": job, "stack": stack}
    # Each once, when the node agent says so. The job's state itself stands in the job table.
    for alarm, metric, says in (
        ("failed", names.METRIC_JOB_FAILURES, "has failed for good and runs no more"),
        ("stalled", names.METRIC_JOB_STALLS, "hung, was stopped and starts again from its last checkpoint"),
        ("host-fault", names.METRIC_HOST_FAULTS, "ran on a host that is no good and is replaced"),
    ):
        yield AlarmSpec(
            f"{job}-{alarm}",
            f"The job {job} {says}; the log of the instances says why.",
            names.INSTANCE_NAMESPACE,
            metric,
            of_instances,
            "Sum",
            at_least=1,
            period=FIVE_MINUTES,
        )
    if has_volume:
        yield AlarmSpec(
            f"{job}-volume-full",
            f"Less than a tenth of {job}'s data volume is free; raise volumeGiB, or delete what nobody "
            "reads.",
            names.INSTANCE_NAMESPACE,
            names.METRIC_FREE_SPACE,
            of_instances,
            "Minimum",
            at_least=10,
            period=FIVE_MINUTES,
            below=True,
        )
    if has_deadline:
        yield _of_controller(
            stack,
            job,
            "deadline",
            names.METRIC_DEADLINE,
            f"The job {job} cannot meet its deadline, or tells no progress, so that nobody knows; the "
            "controller's log said which when it began.",
        )
    if has_budget:
        yield _of_controller(
            stack,
            job,
            "budget",
            names.METRIC_BUDGET,
            f"Most of the budget of the job {job} is spent, or it will not do, or the job is held "
            "because it is spent; the controller's log said which when it began.",
        )


def _of_controller(stack: str, job: str, alarm: str, metric: str, says: str) -> AlarmSpec:
    return AlarmSpec(
        f"{job}-{alarm}",
        says,
        names.METRIC_NAMESPACE,
        metric,
        group_dimensions(stack, job, names.SERVICE_CONTROLLER),
        "Maximum",
        at_least=1,
    )
