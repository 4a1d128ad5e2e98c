"""The metric filters that count the requests in a service's log, and the seconds that they took."""

from __future__ import annotations

from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.schema import RequestLog
from infra.scope import Scope

_DEFAULT: Final = "0"
"""Published for a minute in which the log has events, but none that matches: nothing is not 0.

Source: CloudWatch Logs guide, "Creating metrics from log events using filters", default value.
"""


def declare(scope: Scope, parent: pulumi.Resource, service: str, log: RequestLog) -> None:
    """Declare the filters of a service's log group, which exists.

    A filter has one metric and no dimensions, which exclude a default value, so that the metrics' names have
    the stack and the group. A filter counts events from its creation on.
    """
    _filter(scope, parent, service, "requests", log, pattern=log.pattern, value="1", unit="Count")
    if log.seconds is not None:
        _filter(
            scope,
            parent,
            service,
            "seconds",
            log,
            pattern=log.pattern if log.seconds_pattern is None else log.seconds_pattern,
            value=log.seconds,
            unit=log.unit.capitalize(),
        )


def _filter(
    scope: Scope,
    parent: pulumi.Resource,
    service: str,
    measure: str,
    log: RequestLog,
    *,
    pattern: str,
    value: str,
    unit: str,
) -> None:
    aws.cloudwatch.LogMetricFilter(
        scope.name(service, measure),
        log_group_name=log.group,
        pattern=pattern,
        metric_transformation=aws.cloudwatch.LogMetricFilterMetricTransformationArgs(
            name=names.request_metric(scope.stack, service, measure),
            namespace=names.REQUEST_LOG_NAMESPACE,
            value=value,
            default_value=_DEFAULT,
            unit=unit,
        ),
        opts=pulumi.ResourceOptions(parent=parent),
    )
