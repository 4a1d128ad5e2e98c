"""The dashboard: what a group has against what it should have, who pays what, what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pulumi

from infra.components.monitoring.alarms import group_dimensions
from infra.scope import Scope
from lambdas.core import names

_WIDTH: Final = 24
_HEIGHT: Final = 6


def body(
    scope: Scope,
    groups: Mapping[str, bool],
    *,
    function: pulumi.Input[str],
    service: str,
    log_group: pulumi.Input[str],
) -> dict[str, Any]:
    """Return the dashboard's body; ``groups`` says whose GPUs are NVIDIA's, for others there is no plot.

    Outputs stay outputs: only values hang on them, never the layout.
    """
    rows = [_group_row(scope, group, service, is_nvidia) for group, is_nvidia in groups.items()]
    rows.append(_controller_row(scope, function, log_group))
    return {
        "start": "-PT6H",
        "widgets": [
            {**widget, "x": column * (_WIDTH // len(row)), "y": index * _HEIGHT, "height": _HEIGHT}
            | {"width": _WIDTH // len(row)}
            for index, row in enumerate(rows)
            for column, widget in enumerate(row)
        ],
    }


def _group_row(scope: Scope, group: str, service: str, is_nvidia: bool) -> list[dict[str, Any]]:
    dimensions = group_dimensions(scope.stack, group, service)
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


def _controller_row(
    scope: Scope, function: pulumi.Input[str], log_group: pulumi.Input[str]
) -> list[dict[str, Any]]:
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
            "yAxis": {"left": {"min": 0}},
            "metrics": lines,
        },
    }
