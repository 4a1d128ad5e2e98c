"""Alarms of an HTTP service.

Metrics of proxies (`names.METRIC_HTTP_REQUESTS` and others) are sums over all proxies of the service. Source
of the load balancer's: Application Load Balancer guide, "CloudWatch metrics for your Application Load
Balancer".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import (
    FIVE_MINUTES,
    ONCE,
    REPEATED,
    UNKNOWN,
    AlarmSpec,
    Condition,
    MetricSource,
    of_function,
    of_instances,
)

NAMESPACE: Final = "AWS/ApplicationELB"
_ERROR_PERCENT: Final = 5


@dataclass(frozen=True)
class HttpAlarmsArgs:
    """``load_balancer`` and ``target_group`` are values of the dimensions of AWS's metrics."""

    stack: str
    service: str
    load_balancer: pulumi.Input[str]
    target_group: pulumi.Input[str]


def alarms(args: HttpAlarmsArgs) -> Iterator[AlarmSpec]:
    """Yield the alarms of one address."""
    yield from _of_load_balancer(args)
    yield from _of_proxies(args)
    yield AlarmSpec(
        f"{args.service}-http-proxies-unreadable",
        f"Requests at a proxy of {args.service} have been unknown to the queue watcher for ten minutes; its "
        "log has the reason.",
        of_function(args.stack, args.service, names.SERVICE_QUEUES),
        names.METRIC_PROXIES_UNREADABLE,
        UNKNOWN,
    )


def _of_load_balancer(args: HttpAlarmsArgs) -> Iterator[AlarmSpec]:
    name, balancer = f"{args.service}-http", {"LoadBalancer": args.load_balancer}
    yield AlarmSpec(
        f"{name}-load-balancer-errors",
        f"The load balancer of {args.service} itself answers with a status of 5xx: no proxy takes the "
        "request, or one does not answer in time.",
        MetricSource(NAMESPACE, balancer),
        "HTTPCode_ELB_5XX_Count",
        REPEATED,
    )
    yield AlarmSpec(
        f"{name}-proxies-unhealthy",
        f"A proxy of {args.service} has been unhealthy for ten of 15 minutes, or the load balancer has none.",
        MetricSource(NAMESPACE, {**balancer, "TargetGroup": args.target_group}),
        "UnHealthyHostCount",
        Condition("Maximum", periods=15, datapoints=10, treat_missing_data="breaching"),
    )


def _of_proxies(args: HttpAlarmsArgs) -> Iterator[AlarmSpec]:
    name, metrics = f"{args.service}-http", of_instances(args.stack, args.service)
    yield AlarmSpec(
        f"{name}-no-worker",
        f"Requests of {args.service} have come for ten minutes, and no worker takes them; or its proxies "
        "send no metrics.",
        metrics,
        names.METRIC_HTTP_WORKERS_READY,
        replace(UNKNOWN, statistic="Maximum", below=True),
        second_metric=names.METRIC_HTTP_REQUESTS,
        expression="IF(other > 0, value, 1)",
    )
    for part, metric, words in (
        ("refused", names.METRIC_HTTP_REFUSED, "get 503 from the proxies: no worker takes them in time"),
        ("worker-errors", names.METRIC_HTTP_WORKER_ERRORS, "are answered with a status of 5xx by workers"),
    ):
        yield AlarmSpec(
            f"{name}-{part}",
            f"{_ERROR_PERCENT} % or more of the requests of {args.service} {words}, for 15 minutes.",
            metrics,
            metric,
            Condition("Sum", _ERROR_PERCENT, 3, 3, FIVE_MINUTES),
            second_metric=names.METRIC_HTTP_REQUESTS,
            expression="IF(other > 0, 100 * value / other, 0)",
        )
    yield AlarmSpec(
        f"{name}-cut",
        f"Requests of {args.service} were lost with their worker and could not be repeated, or took longer "
        "than idleTimeout: callers got an error.",
        metrics,
        names.METRIC_HTTP_CUT,
        ONCE,
    )
