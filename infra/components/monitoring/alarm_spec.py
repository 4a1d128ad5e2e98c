"""A CloudWatch alarm as a value, and its resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import pulumi
import pulumi_aws as aws

from infra.scope import Scope

MINUTE: Final = 60
FIVE_MINUTES: Final = 300
_MAX_NAME_LENGTH: Final = 255
"""Source: CloudWatch API reference, ``PutMetricAlarm``."""

Dimensions = Mapping[str, pulumi.Input[str]]


@dataclass(frozen=True)
class AlarmSpec:
    """An alarm on ``statistic`` of a metric, in alarm if ``datapoints`` of ``periods`` periods breach.

    A period breaches if the statistic is at or above ``threshold``, with ``below`` if it is less.
    With ``second_metric`` (same dimensions) the alarm is on ``expression``: metric math in which ``value`` is
    ``metric`` and ``other`` is ``second_metric``.
    """

    name: str
    description: str
    namespace: str
    metric: str
    dimensions: Dimensions
    statistic: Literal["Average", "Maximum", "Minimum", "Sum"]
    threshold: int
    period_seconds: int = MINUTE
    periods: int = 1
    datapoints: int = 1
    treat_missing_data: Literal["breaching", "notBreaching"] = "notBreaching"
    below: bool = False
    second_metric: str = ""
    expression: str = ""
    logical_name: str = ""
    """The resource's name in Pulumi if it is not ``name``: alarms that were renamed keep their URN."""


def group_dimensions(stack: str, group: str, service: str) -> dict[str, str]:
    """Return the dimensions of the metrics that the function ``service`` emits for a group."""
    return {"group": group, "stack": stack, "service": service}


def function_alarms(
    short: str, function: pulumi.Input[str], *, title: str, consequence: str
) -> Iterator[AlarmSpec]:
    """Yield the alarms of a function that runs each minute; ``consequence`` is that of not running."""
    dimensions = {"FunctionName": function}
    yield AlarmSpec(
        f"{short}-not-running",
        f"The {title} has not run for five minutes: {consequence}",
        "AWS/Lambda",
        "Invocations",
        dimensions,
        "Sum",
        threshold=1,
        period_seconds=FIVE_MINUTES,
        treat_missing_data="breaching",
        below=True,
        logical_name=f"{short}-silent",
    )
    yield AlarmSpec(
        f"{short}-errors",
        f"Invocations of the {title} fail.",
        "AWS/Lambda",
        "Errors",
        dimensions,
        "Sum",
        threshold=1,
        periods=5,
        datapoints=3,
    )


def declare_alarm(
    scope: Scope, topic_arn: pulumi.Input[str], alarm: AlarmSpec, parent: pulumi.Resource
) -> aws.cloudwatch.MetricAlarm:
    """Declare an alarm that notifies the topic when it enters ``ALARM`` and when it returns to ``OK``."""
    name = scope.name(alarm.name, limit=_MAX_NAME_LENGTH)
    logical_name = scope.name(alarm.logical_name, limit=_MAX_NAME_LENGTH) if alarm.logical_name else name
    is_plain_metric = not alarm.second_metric
    return aws.cloudwatch.MetricAlarm(
        logical_name,
        name=name if alarm.logical_name else None,
        alarm_description=alarm.description,
        namespace=alarm.namespace if is_plain_metric else None,
        metric_name=alarm.metric if is_plain_metric else None,
        dimensions=alarm.dimensions if is_plain_metric else None,
        statistic=alarm.statistic if is_plain_metric else None,
        metric_queries=None if is_plain_metric else list(_queries(alarm)),
        comparison_operator="LessThanThreshold" if alarm.below else "GreaterThanOrEqualToThreshold",
        threshold=alarm.threshold,
        period=alarm.period_seconds if is_plain_metric else None,
        evaluation_periods=alarm.periods,
        datapoints_to_alarm=alarm.datapoints,
        treat_missing_data=alarm.treat_missing_data,
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
                namespace=alarm.namespace,
                metric_name=metric,
                dimensions=alarm.dimensions,
                stat=alarm.statistic,
                period=alarm.period_seconds,
            ),
        )
    yield aws.cloudwatch.MetricAlarmMetricQueryArgs(
        id="result", expression=alarm.expression, label=alarm.name, return_data=True
    )
