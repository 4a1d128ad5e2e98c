"""The dashboard: what a group has against what it should have, who pays what, what went wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, TypeAlias

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import group_dimensions
from infra.scope import Scope

_WIDTH: Final = 24
_HEIGHT: Final = 6


DashboardRow: TypeAlias = list[dict[str, Any]]
"""Widgets side by side, without their places."""


def body(
    scope: Scope, rows: Iterable[DashboardRow], function: pulumi.Input[str], log_group: pulumi.Input[str]
) -> dict[str, Any]:
    """Return the dashboard's body: the rows of all groups, and last the controller's.

    Outputs stay outputs: only values hang on them, never the layout.
    """
    return {
        "start": "-PT6H",
        "widgets": [
            {**widget, "x": column * (_WIDTH // len(row)), "y": index * _HEIGHT, "height": _HEIGHT}
            | {"width": _WIDTH // len(row)}
            for index, row in enumerate([*rows, _controller_row(scope, function, log_group)])
            for column, widget in enumerate(row)
        ],
    }


def group_row(scope: Scope, group: str, *, is_nvidia: bool) -> DashboardRow:
    """Return what a group has against what it should have; of other makers' GPUs than NVIDIA's no plot."""
    dimensions = group_dimensions(scope.stack, group, names.SERVICE_CONTROLLER)
    of = [part for pair in dimensions.items() for part in pair]
    gpu = ["group", group, "stack", scope.stack]

    def line(metric: str, statistic: str = "Average", **options: Any) -> list[Any]:
        return [names.METRIC_NAMESPACE, metric, *of, {"stat": statistic, **options}]

    def gpu_line(metric: str, statistic: str, label: str) -> list[Any]:
        return [names.INSTANCE_NAMESPACE, f"nvidia_smi_{metric}", *gpu, {"stat": statistic, "label": label}]

    row = [
        _plot(scope, f"{group}: ready against target", [line("Target", "Maximum"), line("Ready", "Minimum")]),
        _plot(scope, f"{group}: spot and on-demand", [line("Spot"), line("OnDemand")], stacked=True),
        _plot(
            scope, f"{group}: doomed and missing", [line("Doomed", "Maximum"), line("Shortage", "Maximum")]
        ),
    ]
    gpus = [
        gpu_line("utilization_gpu", "Average", "busy, %"),
        gpu_line("utilization_memory", "Average", "memory busy, %"),
        gpu_line("temperature_gpu", "Maximum", "hottest, °C"),
    ]
    return [*row, _plot(scope, f"{group}: GPUs", gpus)] if is_nvidia else row


def service_row(scope: Scope, group: str, *, has_queue: bool, scales: bool) -> DashboardRow:
    """Return what a service's users feel, who works for them, and what it costs."""
    controller = names.SERVICE_CONTROLLER

    def line(function: str, metric: str, label: str, *more: str, **options: Any) -> list[Any]:
        of = [part for pair in group_dimensions(scope.stack, group, function).items() for part in pair]
        return [names.METRIC_NAMESPACE, metric, *of, *more, {"stat": "Average", "label": label, **options}]

    def queue(metric: str, label: str, **options: Any) -> list[Any]:
        return line(names.SERVICE_QUEUES, metric, label, **options)

    requests = [
        _plot(
            scope,
            f"{group}: requests a second",
            [queue(names.METRIC_QUEUE_ARRIVING, "come"), queue(names.METRIC_QUEUE_LEAVING, "are done")],
        ),
        _plot(
            scope,
            f"{group}: requests that wait, and the oldest",
            [
                queue(names.METRIC_QUEUE_READY, "wait", stat="Maximum"),
                queue(names.METRIC_QUEUE_TAKEN, "with workers", stat="Maximum"),
                queue(names.METRIC_QUEUE_OLDEST, "oldest at least, s", stat="Maximum", yAxis="right"),
            ],
        ),
    ]
    workers = [
        line(names.SERVICE_HEALTH, metric, f"{state}, {origin}", names.ORIGIN, origin, stat="Maximum")
        for origin in (names.ORIGIN_AWS, names.ORIGIN_ON_PREMISES)
        for metric, state in (
            (names.METRIC_WORKERS_READY, "ready"),
            (names.METRIC_WORKERS_DRAINING, "draining"),
            (names.METRIC_WORKERS_SILENT, "silent"),
        )
    ]
    wanted = [
        line(names.SERVICE_SCALER, names.METRIC_SCALING_WANTED, "the load asks for", stat="Maximum"),
        line(names.SERVICE_SCALER, names.METRIC_SCALING_TARGET, "target", stat="Maximum"),
    ]
    money = [
        line(controller, names.METRIC_HOURLY_COST, "paid", id="paid"),
        line(controller, names.METRIC_HOURLY_COST_ON_DEMAND, "all on-demand", id="whole"),
        [{"expression": "100 * paid / whole", "label": "share, %", "id": "share", "yAxis": "right"}],
    ]
    return [
        *(requests if has_queue else ()),
        *([_plot(scope, f"{group}: what the load asks for", wanted)] if scales else []),
        _plot(scope, f"{group}: workers", workers),
        _plot(scope, f"{group}: US dollars an hour", money),
    ]


def tenants_row(scope: Scope, host: str, tenants: Collection[str]) -> DashboardRow:
    """Return who uses what of a shared host, and what of it was lent."""

    def lines(metric: str) -> list[list[Any]]:
        return [
            [
                *(
                    names.INSTANCE_NAMESPACE,
                    metric,
                    "group",
                    host,
                    "stack",
                    scope.stack,
                    names.TENANT,
                    tenant,
                ),
                {"stat": "Maximum", "label": tenant},
            ]
            for tenant in tenants
        ]

    return [
        _plot(
            scope, f"{host}: seconds of CPU a minute", lines(names.METRIC_TENANT_CPU_SECONDS), stacked=True
        ),
        _plot(scope, f"{host}: of these, others'", lines(names.METRIC_TENANT_CPU_BORROWED), stacked=True),
        _plot(scope, f"{host}: lent to others", lines(names.METRIC_TENANT_CPU_LENT), stacked=True),
        _plot(scope, f"{host}: memory, MB", lines(names.METRIC_TENANT_MEMORY), stacked=True),
    ]


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
        _plot(scope, "Controller", [line(name, "Sum") for name in ("Invocations", "Errors", "Throttles")]),
        _plot(scope, "Controller: duration, ms", [line("Duration", "Maximum")]),
        {
            "type": "log",
            "properties": {
                "title": "Decisions",
                "region": scope.region,
                "view": "table",
                "query": query,
            },
        },
    ]


def _plot(scope: Scope, title: str, lines: list[list[Any]], *, stacked: bool = False) -> dict[str, Any]:
    return {
        "type": "metric",
        "properties": {
            "title": title,
            "region": scope.region,
            "view": "timeSeries",
            "stacked": stacked,
            "period": 60,
            "yAxis": {"left": {"min": 0}, "right": {"min": 0}},
            "metrics": lines,
        },
    }
