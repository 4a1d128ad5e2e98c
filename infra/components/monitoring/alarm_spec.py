"""A CloudWatch alarm as a value, and its resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.scope import Scope

MINUTE: Final = 60
FIVE_MINUTES: Final = 300
_MAX_NAME_LENGTH: Final = 255
"""Source: CloudWatch API reference, ``PutMetricAlarm``."""

Dimensions = Mapping[str, pulumi.Input[str]]


@dataclass(frozen=True)
class Condition:
    """When an alarm is raised: if ``datapoints`` of ``periods`` periods breach.

    A period breaches if ``statistic`` is at or above ``threshold``, with ``below`` if it is less.
    """

    statistic: Literal["Average", "Maximum", "Minimum", "Sum"]
    threshold: int = 1
    periods: int = 1
    datapoints: int = 1
    period_seconds: int = MINUTE
    treat_missing_data: Literal["breaching", "notBreaching"] = "notBreaching"
    below: bool = False


ONCE: Final = Condition("Sum", period_seconds=FIVE_MINUTES)
PRESENT: Final = Condition("Maximum", period_seconds=FIVE_MINUTES)
REPEATED: Final = Condition("Sum", periods=5, datapoints=3)
"""Of errors: a single one is tried again within a minute."""
TEN_MINUTES: Final = Condition("Minimum", periods=10, datapoints=10)
UNKNOWN: Final = replace(TEN_MINUTES, treat_missing_data="breaching")
"""Of a metric that says for ten minutes that something is unknown, or is missing itself."""

_UNDECIDED: Final = Condition("Maximum", threshold=FIVE_MINUTES, period_seconds=FIVE_MINUTES)


@dataclass(frozen=True)
class MetricSource:
    """Metrics of a namespace with the same dimensions."""

    namespace: str
    dimensions: Dimensions


@dataclass(frozen=True)
class AlarmSpec:
    """An alarm on one of ``metrics``.

    With ``second_metric`` it is on ``expression``: metric math in which ``value`` is ``metric`` and ``other``
    is ``second_metric``.
    """

    name: str
    description: str
    metrics: MetricSource
    metric: str
    condition: Condition
    second_metric: str = ""
    expression: str = ""


def group_dimensions(stack: str, group: str, service: str) -> dict[str, str]:
    """Return the dimensions of the metrics that the function ``service`` emits for a group."""
    return {"group": group, "stack": stack, "service": service}


def of_function(stack: str, group: str, service: str) -> MetricSource:
    """Return the metrics that the function ``service`` emits for a group."""
    return MetricSource(names.METRIC_NAMESPACE, group_dimensions(stack, group, service))


def of_instances(stack: str, group: str) -> MetricSource:
    """Return the metrics that the instances of a group emit."""
    return MetricSource(names.INSTANCE_NAMESPACE, {"group": group, "stack": stack})


def function_alarms(
    short: str, function: pulumi.Input[str], *, title: str, consequence: str
) -> Iterator[AlarmSpec]:
    """Yield the alarms of a function that runs each minute; ``consequence`` is that of not running."""
    metrics = MetricSource("AWS/Lambda", {"FunctionName": function})
    condition = replace(ONCE, treat_missing_data="breaching", below=True)
    not_running = f"The {title} has not run for five minutes: {consequence}"
    yield AlarmSpec(f"{short}-not-running", not_running, metrics, "Invocations", condition)
    yield AlarmSpec(f"{short}-errors", f"Invocations of the {title} fail.", metrics, "Errors", REPEATED)


def undecided_alarm(short: str, stack: str, service: str, title: str) -> AlarmSpec:
    """Return the alarm of a function whose passes do not reach each group."""
    metrics = MetricSource(names.METRIC_NAMESPACE, {"stack": stack, "service": service})
    late = f"The {title} has not decided about a group for five minutes; its log says which are left."
    return AlarmSpec(f"{short}-late", late, metrics, names.METRIC_UNDECIDED_SECONDS, _UNDECIDED)


def declare_alarm(
    scope: Scope, topic_arn: pulumi.Input[str], alarm: AlarmSpec, parent: pulumi.Resource
) -> aws.cloudwatch.MetricAlarm:
    """Declare an alarm that notifies the topic when it enters ``ALARM`` and when it returns to ``OK``."""
    name = scope.name(alarm.name, limit=_MAX_NAME_LENGTH)
    metrics, condition = alarm.metrics, alarm.condition
    is_plain_metric = not alarm.second_metric
    return aws.cloudwatch.MetricAlarm(
        name,
        alarm_description=alarm.description,
        namespace=metrics.namespace if is_plain_metric else None,
        metric_name=alarm.metric if is_plain_metric else None,
        dimensions=metrics.dimensions if is_plain_metric else None,
        statistic=condition.statistic if is_plain_metric else None,
        metric_queries=None if is_plain_metric else list(_queries(alarm)),
        comparison_operator="LessThanThreshold" if condition.below else "GreaterThanOrEqualToThreshold",
        threshold=condition.threshold,
        period=condition.period_seconds if is_plain_metric else None,
        evaluation_periods=condition.periods,
        datapoints_to_alarm=condition.datapoints,
        treat_missing_data=condition.treat_missing_data,
        alarm_actions=[topic_arn],
        ok_actions=[topic_arn],
        tags=scope.tags(name),
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _queries(alarm: AlarmSpec) -> Iterator[aws.cloudwatch.MetricAlarmMetricQueryArgs]:
    for name, metric in (("value", alarm.metric), ("other", alarm.second_metric)):
        yield aws.cloudwatch.MetricAlarmMetricQueryArgs(
            id=name,
            metric=aws.cloudwatch.MetricAlarmMetricQueryMetricArgs(
                namespace=alarm.metrics.namespace,
                metric_name=metric,
                dimensions=alarm.metrics.dimensions,
                stat=alarm.condition.statistic,
                period=alarm.condition.period_seconds,
            ),
        )
    yield aws.cloudwatch.MetricAlarmMetricQueryArgs(
        id="result", expression=alarm.expression, label=alarm.name, return_data=True
    )
