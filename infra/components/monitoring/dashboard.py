"""Body of the CloudWatch dashboard: rows for each group and one for the controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import group_dimensions
from infra.components.monitoring.telemetry import log_group_name
from infra.scope import Scope, check_size

_WIDTH: Final = 24
_HEIGHT: Final = 6


DashboardRow: TypeAlias = list[dict[str, Any]]
"""Widgets of one row, without their positions."""


def body(
    scope: Scope, rows: Iterable[DashboardRow], function: pulumi.Input[str], log_group: pulumi.Input[str]
) -> dict[str, Any]:
    """Return the dashboard's body: the rows of all groups, then the controller's.

    Only values depend on Pulumi outputs, never the layout.
    """
    widgets = [
        {**widget, "x": column * (_WIDTH // len(row)), "y": index * _HEIGHT, "height": _HEIGHT}
        | {"width": _WIDTH // len(row)}
        for index, row in enumerate([*rows, _controller_row(scope, function, log_group)])
        for column, widget in enumerate(row)
    ]
    # CloudWatch user guide, "CloudWatch service quotas".
    metrics = sum(len(widget["properties"].get("metrics", ())) for widget in widgets)
    check_size("the dashboard", len(widgets), 500, "widgets")
    check_size("the dashboard", metrics, 2500, "metrics")
    return {"start": "-PT6H", "widgets": widgets}


def group_row(scope: Scope, group: str, *, is_nvidia: bool) -> DashboardRow:
    """Return a group's row: readiness, purchase options, losses, and GPUs if they are NVIDIA's."""
    dimensions = group_dimensions(scope.stack, group, names.SERVICE_CONTROLLER)
    pairs = [part for pair in dimensions.items() for part in pair]
    gpu = ["group", group, "stack", scope.stack]

    def line(metric: str, statistic: str = "Average", **options: Any) -> list[Any]:
        return [names.METRIC_NAMESPACE, metric, *pairs, {"stat": statistic, **options}]

    def gpu_line(metric: str, statistic: str, label: str, **options: Any) -> list[Any]:
        return [names.INSTANCE_NAMESPACE, metric, *gpu, {"stat": statistic, "label": label, **options}]

    target = line("Target", "Maximum", id="target", label="target")
    ready = line("Ready", "Minimum", id="ready", label="ready")
    missing = [
        [*target[:-1], {**target[-1], "visible": False}],
        [*ready[:-1], {**ready[-1], "visible": False}],
        [{"expression": "target - ready", "label": "missing", "id": "missing"}],
        line("Shortage", "Maximum", label="shortage, as in the alarm"),
        line(names.METRIC_INTERRUPTED_INSTANCES, "Maximum", label="interrupted instances", yAxis="right"),
    ]
    bought = [line("Spot", label="Spot"), line("OnDemand", label="On-Demand")]
    row = [
        _plot(scope, f"{group}: ready and target", [target, ready], "slots"),
        _plot(scope, f"{group}: Spot and On-Demand", bought, "slots", stacked=True),
        _plot(scope, f"{group}: interrupted and missing", missing, "slots", "instances"),
    ]
    gpus = [
        gpu_line(names.METRIC_GPU_UTILIZATION, "Average", "utilization, mean, %"),
        gpu_line(names.METRIC_GPU_UTILIZATION, "Minimum", "utilization, least busy GPU, %"),
        gpu_line(names.METRIC_GPU_TEMPERATURE, "Maximum", "temperature, hottest GPU, °C"),
        gpu_line(names.METRIC_GPU_MEMORY_USED, "Average", "memory used, mean, MiB", yAxis="right"),
        gpu_line(names.METRIC_GPU_MEMORY_USED, "Maximum", "memory used, fullest GPU, MiB", yAxis="right"),
    ]
    return [*row, _plot(scope, f"{group}: GPUs", gpus, "% or °C", "MiB")] if is_nvidia else row


def service_row(scope: Scope, group: str, *, has_queue: bool, scales: bool) -> DashboardRow:
    """Return a service's row: queue, scaling, workers and cost."""
    controller, origins = names.SERVICE_CONTROLLER, (names.ORIGIN_AWS, names.ORIGIN_ON_PREMISES)

    def line(function: str, metric: str, label: str, *extra: str, **options: Any) -> list[Any]:
        pairs = [part for pair in group_dimensions(scope.stack, group, function).items() for part in pair]
        return [
            names.METRIC_NAMESPACE,
            metric,
            *pairs,
            *extra,
            {"stat": "Average", "label": label, **options},
        ]

    def queue(metric: str, label: str, **options: Any) -> list[Any]:
        return line(names.SERVICE_QUEUES, metric, label, **options)

    requests = [
        _plot(
            scope,
            f"{group}: requests per second",
            [
                queue(names.METRIC_QUEUE_PUBLISH_RATE, "published"),
                queue(names.METRIC_QUEUE_ACK_RATE, "acknowledged"),
                *(
                    line(
                        names.SERVICE_HEALTH,
                        names.METRIC_REQUESTS_REFUSED,
                        f"refused, {origin}",
                        names.ORIGIN,
                        origin,
                    )
                    for origin in origins
                ),
            ],
            "requests per second",
        ),
        _plot(
            scope,
            f"{group}: requests in the queue",
            [
                queue(names.METRIC_QUEUE_READY, "ready", stat="Maximum"),
                queue(names.METRIC_QUEUE_IN_FLIGHT, "in flight", stat="Maximum"),
                queue(
                    names.METRIC_QUEUE_OLDEST_MESSAGE_AGE,
                    "age of the oldest, s",
                    stat="Maximum",
                    yAxis="right",
                ),
            ],
            "requests",
            "seconds",
        ),
    ]
    workers = [
        line(names.SERVICE_HEALTH, metric, f"{state}, {origin}", names.ORIGIN, origin, stat="Maximum")
        for origin in origins
        for metric, state in (
            (names.METRIC_WORKERS_READY, "ready"),
            (names.METRIC_WORKERS_DRAINING, "draining"),
            (names.METRIC_WORKERS_NOT_REPORTING, "not reporting"),
        )
    ]
    stopped = [
        line(
            names.SERVICE_HEALTH,
            names.METRIC_WORKERS_STOPPED,
            f"taking no requests, {reason}",
            names.STOP_REASON,
            reason,
            stat="Maximum",
        )
        for reason in names.STOP_REASONS
    ]
    scaling = [
        line(names.SERVICE_SCALER, names.METRIC_SCALING_DESIRED, "by load", stat="Maximum"),
        line(names.SERVICE_SCALER, names.METRIC_SCALING_TARGET, "target", stat="Maximum"),
    ]
    cost = [
        line(controller, names.METRIC_HOURLY_COST, "paid", id="paid"),
        line(controller, names.METRIC_HOURLY_COST_ON_DEMAND, "as On-Demand of the fallback", id="whole"),
        [{"expression": "100 * paid / whole", "label": "share, %", "id": "share", "yAxis": "right"}],
    ]
    return [
        *(requests if has_queue else ()),
        *([_plot(scope, f"{group}: scaling", scaling, "slots")] if scales else []),
        _plot(scope, f"{group}: workers", [*workers, *(stopped if has_queue else ())], "workers"),
        _plot(scope, f"{group}: US dollars per hour", cost, "US dollars per hour", "%"),
    ]


def http_row(scope: Scope, service: str, load_balancer: pulumi.Input[str]) -> DashboardRow:
    """Return the row of an HTTP service: requests, queues, workers and latency.

    ``load_balancer`` is the dimension of AWS's metrics.
    """

    def line(metric: str, label: str, statistic: str, **options: Any) -> list[Any]:
        dimensions = ["group", service, "stack", scope.stack]
        return [names.INSTANCE_NAMESPACE, metric, *dimensions, {"stat": statistic, "label": label, **options}]

    def latency(statistic: str) -> list[Any]:
        options = {"stat": statistic, "label": statistic}
        return ["AWS/ApplicationELB", "TargetResponseTime", "LoadBalancer", load_balancer, options]

    counted = {
        "received": names.METRIC_HTTP_REQUESTS,
        "refused": names.METRIC_HTTP_REFUSED,
        "errors of workers": names.METRIC_HTTP_WORKER_ERRORS,
        "repeated": names.METRIC_HTTP_REPEATED,
        "cut": names.METRIC_HTTP_CUT,
    }
    requests = []  # a rate, because CloudWatch widens the period of a longer view
    for number, (label, metric) in enumerate(counted.items()):
        requests.append(line(metric, label, "Sum", id=f"m{number}", visible=False))
        rate = {"expression": f"60 * m{number} / PERIOD(m{number})", "label": label, "id": f"e{number}"}
        requests.append([rate])
    queues = [
        line(names.METRIC_HTTP_WAITING, "waiting at one proxy", "Maximum"),
        line(names.METRIC_HTTP_IN_FLIGHT, "at workers, from one proxy", "Maximum"),
    ]
    ready = [
        line(names.METRIC_HTTP_WORKERS_READY, "most", "Maximum"),
        line(names.METRIC_HTTP_WORKERS_READY, "fewest", "Minimum"),
    ]
    return [
        _plot(scope, f"{service}: requests per minute", requests, "requests per minute"),
        _plot(scope, f"{service}: requests at proxies", queues, "requests"),
        _plot(scope, f"{service}: workers that proxies see ready", ready, "workers"),
        _plot(scope, f"{service}: seconds to the answer", [latency("p50"), latency("p99")], "seconds"),
    ]


def tenants_row(scope: Scope, host: str) -> DashboardRow:
    """Return a shared host's row: what each tenant used, borrowed and lent, from the log of its instances."""
    sums = (
        names.METRIC_TENANT_CPU_SECONDS,
        names.METRIC_TENANT_CPU_BORROWED,
        names.METRIC_TENANT_CPU_LENT,
        names.METRIC_TENANT_CPU_THROTTLED,
    )
    columns = ", ".join(
        [f"sum({name}) as {name.removeprefix('Tenant')}_sum" for name in sums]
        + [f"max({names.METRIC_TENANT_MEMORY}) as memory_MB"]
    )
    source = f"SOURCE '{log_group_name(scope, host)}' | filter ispresent({names.METRIC_TENANT_CPU_SECONDS})"
    return [_table(scope, f"{host}: tenants", f"{source} | stats {columns} by {names.TENANT}")]


def _controller_row(scope: Scope, function: pulumi.Input[str], log_group: pulumi.Input[str]) -> DashboardRow:
    def line(metric: str, statistic: str) -> list[Any]:
        return ["AWS/Lambda", metric, "FunctionName", function, {"stat": statistic}]

    query = pulumi.Output.concat(
        "SOURCE '",
        log_group,
        "' | fields @timestamp, group, reason, actions.0.action as action | filter message = 'decision' "
        "and ispresent(action) | sort @timestamp desc | limit 50",
    )
    return [
        _plot(
            scope,
            "Controller",
            [line(name, "Sum") for name in ("Invocations", "Errors", "Throttles")],
            "calls",
        ),
        _plot(scope, "Controller: duration, ms", [line("Duration", "Maximum")], "ms"),
        _table(scope, "Decisions", query),
    ]


def _table(scope: Scope, title: str, query: pulumi.Input[str]) -> dict[str, Any]:
    return {
        "type": "log",
        "properties": {"title": title, "region": scope.region, "view": "table", "query": query},
    }


def _plot(
    scope: Scope,
    title: str,
    lines: list[list[Any]],
    unit: str,
    right_unit: str = "",
    *,
    stacked: bool = False,
) -> dict[str, Any]:
    """Return a plot; ``unit`` and ``right_unit`` are those of its axes."""
    units = {"left": unit, "right": right_unit}
    axes = {side: {"min": 0, "label": label, "showUnits": False} for side, label in units.items() if label}
    return {
        "type": "metric",
        "properties": {
            "title": title,
            "region": scope.region,
            "view": "timeSeries",
            "stacked": stacked,
            "period": 60,
            "yAxis": axes,
            "metrics": lines,
        },
    }
