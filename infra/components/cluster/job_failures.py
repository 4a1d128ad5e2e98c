"""Jobs of a created cluster that fail, or do not start: metric filters of its audit log, and their alarms.

EKS has no metric of Jobs. The audit log has each update of a Job's status with its conditions: EKS's audit
policy extends the reference policy of Kubernetes (EKS Best Practices Guide, "Enable audit logs"), which logs
changes of the API group ``batch`` with their responses (kubernetes, ``cluster/gce/gci/configure-helper.sh``).
It logs what kubelets report of pods, too. TrainJobs are not in that policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.components.monitoring.alarm_spec import ONCE, AlarmSpec, Condition, MetricSource
from infra.schema import Kubernetes, Training
from infra.scope import Scope, check_size

AUDIT_LOG: Final = "audit"
_AGAIN: Final = Condition("Sum", threshold=3, period_seconds=10_800)
_CONDITIONS: Final = 4
"""How many of a Job's conditions are looked at: Suspended and FailureTarget may be before Failed."""


def watched(settings: Kubernetes, jobs: Sequence[Training]) -> list[str]:
    """Return the names of the jobs whose failure the cluster's log shows."""
    if settings.create is None or AUDIT_LOG not in settings.create.logs:
        return []
    return [job.name for job in jobs if not job.nodes.needs_all]


def patterns(namespace: str, job: str) -> dict[str, str]:
    """Return the filter patterns of the audit events that say something of a Job, by event.

    ``failures``: it failed. ``starts-failed``: a kubelet rejected a pod (kubernetes, ``rejectPod``), or did
    not get its image; of a pod of a lost node there is no such report. ``waits``: Kueue took the job's turn,
    because not all its pods were ready in time.
    Source: CloudWatch Logs guide, "Filter pattern syntax" (JSON; an array has no wildcard).
    """
    conditions = " || ".join(
        f'($.responseObject.status.conditions[{number}].type = "Failed")' for number in range(_CONDITIONS)
    )
    waiting = " || ".join(
        f'($.requestObject.status.{containers}[0].state.waiting.reason = "*Image*")'
        for containers in ("initContainerStatuses", "containerStatuses")
    )
    rejected = f'($.requestObject.status.message = "Pod was rejected: *") || {waiting}'
    return {
        "failures": _pattern("jobs", namespace, job, conditions, subresource="status"),
        "starts-failed": _pattern("pods", namespace, f"{job}-*", rejected, subresource="status"),
        "waits": _pattern("jobs", namespace, job, "$.requestObject.spec.suspend IS TRUE", verb="patch"),
    }


def _pattern(
    resource: str, namespace: str, name: str, says: str, subresource: str = "", verb: str = ""
) -> str:
    reference = {"resource": resource, "namespace": namespace, "name": name, "subresource": subresource}
    conditions = [f'($.objectRef.{key} = "{value}")' for key, value in reference.items() if value]
    conditions += [f'($.verb = "{verb}")'] if verb else []
    return f"{{ {' && '.join(conditions)} && ({says}) }}"


def declare_filters(
    scope: Scope,
    namespace: str,
    jobs: Sequence[str],
    log_group: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Declare metric filters of the cluster's log group for each job."""
    events = [(job, *item) for job in jobs for item in patterns(namespace, job).items()]
    # CloudWatch Logs API reference, ``PutMetricFilter``: of one log group.
    remedy = "remove audit from kubernetes.create.logs, or divide the jobs between two stacks"
    check_size("the cluster's audit log", len(events), 100, "metric filters", remedy)
    for job, event, pattern in events:
        aws.cloudwatch.LogMetricFilter(
            scope.name(job, event),
            log_group_name=log_group,
            pattern=pattern,
            metric_transformation=aws.cloudwatch.LogMetricFilterMetricTransformationArgs(
                name=names.kubernetes_job_metric(scope.stack, job, event),
                namespace=names.KUBERNETES_NAMESPACE,
                value="1",
            ),
            opts=opts,
        )


def alarms(stack: str, jobs: Sequence[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of jobs that failed or do not start."""
    for job in jobs:
        for name, event, description, condition in (
            (
                f"{job}-failed",
                "failures",
                f"The Job {job} failed permanently and is not restarted; its pods' logs have the reason.",
                ONCE,
            ),
            (
                f"{job}-not-started",
                "starts-failed",
                f"A node rejected a pod of the Job {job}, or did not get its image; kubectl describe pod.",
                ONCE,
            ),
            (
                f"{job}-waits",
                "waits",
                f"The Job {job} lacked pods again and again: no capacity, or a pod that cannot start.",
                _AGAIN,
            ),
        ):
            metric = names.kubernetes_job_metric(stack, job, event)
            yield AlarmSpec(
                name, description, MetricSource(names.KUBERNETES_NAMESPACE, {}), metric, condition
            )
