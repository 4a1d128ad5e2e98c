"""Failed Jobs of a created cluster: metric filters of its audit log, and their alarms.

EKS has no metric of Jobs. The audit log has each update of a Job's status with its conditions: EKS's audit
policy extends the reference policy of Kubernetes (EKS Best Practices Guide, "Enable audit logs"), which logs
changes of the API group ``batch`` with their responses (kubernetes, ``cluster/gce/gci/configure-helper.sh``).
TrainJobs are not in that policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.components.monitoring.alarm_spec import ONCE, AlarmSpec, MetricSource
from infra.schema import Kubernetes, Training
from infra.scope import Scope

AUDIT_LOG: Final = "audit"
_CONDITIONS: Final = 4
"""How many of a Job's conditions are looked at: Suspended and FailureTarget may be before Failed."""


def watched(settings: Kubernetes, jobs: Sequence[Training]) -> list[str]:
    """Return the names of the jobs whose failure the cluster's log shows."""
    if settings.create is None or AUDIT_LOG not in settings.create.logs:
        return []
    return [job.name for job in jobs if not job.nodes.needs_all]


def pattern(namespace: str, job: str) -> str:
    """Return the filter pattern of the audit events that say that a Job failed.

    Source: CloudWatch Logs guide, "Filter pattern syntax" (JSON; an array has no wildcard).
    """
    conditions = " || ".join(
        f'($.responseObject.status.conditions[{number}].type = "Failed")' for number in range(_CONDITIONS)
    )
    reference = {"resource": "jobs", "subresource": "status", "namespace": namespace, "name": job}
    of_job = " && ".join(f'($.objectRef.{key} = "{value}")' for key, value in reference.items())
    return f"{{ {of_job} && ({conditions}) }}"


def declare_filters(
    scope: Scope,
    namespace: str,
    jobs: Sequence[str],
    log_group: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Declare a metric filter of the cluster's log group for each job."""
    for job in jobs:
        aws.cloudwatch.LogMetricFilter(
            scope.name(job, "failures"),
            log_group_name=log_group,
            pattern=pattern(namespace, job),
            metric_transformation=aws.cloudwatch.LogMetricFilterMetricTransformationArgs(
                name=names.kubernetes_failures_metric(scope.stack, job),
                namespace=names.KUBERNETES_NAMESPACE,
                value="1",
            ),
            opts=opts,
        )


def alarms(stack: str, jobs: Sequence[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of failed jobs."""
    for job in jobs:
        yield AlarmSpec(
            f"{job}-failed",
            f"The Job {job} failed permanently and is not restarted; its pods' logs have the reason.",
            MetricSource(names.KUBERNETES_NAMESPACE, {}),
            names.kubernetes_failures_metric(stack, job),
            ONCE,
        )
