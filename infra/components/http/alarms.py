"""Alarms of an HTTP service.

Metrics of proxies (`names.METRIC_HTTP_REQUESTS` and others) are sums over all proxies of the service. Source
of the load balancer's: Application Load Balancer guide, "CloudWatch metrics for your Application Load
Balancer".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import FIVE_MINUTES, AlarmSpec, group_dimensions

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
        names.METRIC_NAMESPACE,
        names.METRIC_PROXIES_UNREADABLE,
        group_dimensions(args.stack, args.service, names.SERVICE_QUEUES),
        "Minimum",
        threshold=1,
        periods=10,
        datapoints=10,
        treat_missing_data="breaching",
    )


def _of_load_balancer(args: HttpAlarmsArgs) -> Iterator[AlarmSpec]:
    name, balancer = f"{args.service}-http", {"LoadBalancer": args.load_balancer}
    yield AlarmSpec(
        f"{name}-load-balancer-errors",
        f"The load balancer of {args.service} itself answers with a status of 5xx: no proxy takes the "
        "request, or one does not answer in time.",
        NAMESPACE,
        "HTTPCode_ELB_5XX_Count",
        balancer,
        "Sum",
        threshold=1,
        periods=5,
        datapoints=3,
    )
    yield AlarmSpec(
        f"{name}-proxies-unhealthy",
        f"A proxy of {args.service} has been unhealthy for ten of 15 minutes, or the load balancer has none.",
        NAMESPACE,
        "UnHealthyHostCount",
        {**balancer, "TargetGroup": args.target_group},
        "Maximum",
        threshold=1,
        periods=15,
        datapoints=10,
        treat_missing_data="breaching",
    )


def _of_proxies(args: HttpAlarmsArgs) -> Iterator[AlarmSpec]:
    name, dimensions = f"{args.service}-http", {"group": args.service, "stack": args.stack}
    yield AlarmSpec(
        f"{name}-no-worker",
        f"Requests of {args.service} have come for ten minutes, and no worker takes them; or its proxies "
        "send no metrics.",
        names.INSTANCE_NAMESPACE,
        names.METRIC_HTTP_WORKERS_READY,
        dimensions,
        "Maximum",
        threshold=1,
        periods=10,
        datapoints=10,
        treat_missing_data="breaching",
        below=True,
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
            names.INSTANCE_NAMESPACE,
            metric,
            dimensions,
            "Sum",
            threshold=_ERROR_PERCENT,
            period_seconds=FIVE_MINUTES,
            periods=3,
            datapoints=3,
            second_metric=names.METRIC_HTTP_REQUESTS,
            expression="IF(other > 0, 100 * value / other, 0)",
        )
    yield AlarmSpec(
        f"{name}-cut",
        f"Requests of {args.service} were lost with their worker and could not be repeated, or took longer "
        "than idleTimeout: callers got an error.",
        names.INSTANCE_NAMESPACE,
        names.METRIC_HTTP_CUT,
        dimensions,
        "Sum",
        threshold=1,
        period_seconds=FIVE_MINUTES,
    )
