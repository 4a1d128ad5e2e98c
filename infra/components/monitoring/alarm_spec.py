"""One alarm, and how it is declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import pulumi
import pulumi_aws as aws

from infra.scope import Scope

MINUTE: Final = 60
FIVE_MINUTES: Final = 300
_LONGEST_NAME: Final = 255
"""Of an alarm (``PutMetricAlarm``)."""

Inputs = Mapping[str, pulumi.Input[str]]


@dataclass(frozen=True)
class AlarmSpec:
    """One alarm: ``statistic`` of a metric at or above ``at_least`` in ``needed`` of ``periods`` periods.

    ``period`` is in seconds. ``silence`` says what no data means. With ``other``, a second metric of the same
    dimensions, ``expression`` (metric math) makes one number of ``value`` and ``other``, which counts then.
    """

    name: str
    says: str
    namespace: str
    metric: str
    dimensions: Inputs
    statistic: Literal["Average", "Maximum", "Minimum", "Sum"]
    at_least: int
    period: int = MINUTE
    periods: int = 1
    needed: int = 1
    silence: Literal["breaching", "notBreaching"] = "notBreaching"
    below: bool = False
    other: str = ""
    expression: str = ""


def group_dimensions(stack: str, group: str, service: str) -> dict[str, str]:
    """Return the dimensions under which the function ``service`` reports a group."""
    return {"group": group, "stack": stack, "service": service}


def of_function(short: str, function: pulumi.Input[str], *, who: str, silent: str) -> Iterator[AlarmSpec]:
    """Yield the alarms of a function that must run each minute; ``silent`` says what its silence means."""
    of = {"FunctionName": function}
    yield AlarmSpec(
        f"{short}-silent",
        f"The {who} has not run for five minutes: {silent}",
        "AWS/Lambda",
        "Invocations",
        of,
        "Sum",
        at_least=1,
        period=FIVE_MINUTES,
        silence="breaching",
        below=True,
    )
    yield AlarmSpec(
        f"{short}-errors",
        f"Runs of the {who} fail.",
        "AWS/Lambda",
        "Errors",
        of,
        "Sum",
        at_least=1,
        periods=5,
        needed=3,
    )


def declare(
    scope: Scope, topic_arn: pulumi.Input[str], alarm: AlarmSpec, parent: pulumi.Resource
) -> aws.cloudwatch.MetricAlarm:
    """Declare an alarm whose beginning and end the topic hears."""
    name, alone = scope.name(alarm.name, limit=_LONGEST_NAME), not alarm.other
    return aws.cloudwatch.MetricAlarm(
        name,
        alarm_description=alarm.says,
        namespace=alarm.namespace if alone else None,
        metric_name=alarm.metric if alone else None,
        dimensions=alarm.dimensions if alone else None,
        statistic=alarm.statistic if alone else None,
        metric_queries=None if alone else list(_queries(alarm)),
        comparison_operator="LessThanThreshold" if alarm.below else "GreaterThanOrEqualToThreshold",
        threshold=alarm.at_least,
        period=alarm.period if alone else None,
        evaluation_periods=alarm.periods,
        datapoints_to_alarm=alarm.needed,
        treat_missing_data=alarm.silence,
        alarm_actions=[topic_arn],
        ok_actions=[topic_arn],
        tags=scope.tags(name),
        opts=pulumi.ResourceOptions(parent=parent),
    )


def _queries(alarm: AlarmSpec) -> Iterator[aws.cloudwatch.MetricAlarmMetricQueryArgs]:
    for name, metric in (("value", alarm.metric), ("other", alarm.other)):
        yield aws.cloudwatch.MetricAlarmMetricQueryArgs(
            id=name,
            metric=aws.cloudwatch.MetricAlarmMetricQueryMetricArgs(
                namespace=alarm.namespace,
                metric_name=metric,
                dimensions=alarm.dimensions,
                stat=alarm.statistic,
                period=alarm.period,
            ),
        )
    yield aws.cloudwatch.MetricAlarmMetricQueryArgs(
        id="result", expression=alarm.expression, label=alarm.name, return_data=True
    )
