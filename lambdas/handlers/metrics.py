"""Metrics in embedded metric format, as the functions write them into their logs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from contracts import names

_UNITS = {
    names.METRIC_QUEUE_OLDEST: MetricUnit.Seconds,
    names.METRIC_QUEUE_ARRIVING: MetricUnit.CountPerSecond,
    names.METRIC_QUEUE_LEAVING: MetricUnit.CountPerSecond,
    names.METRIC_HOURLY_COST: MetricUnit.NoUnit,
    names.METRIC_HOURLY_COST_ON_DEMAND: MetricUnit.NoUnit,
}
"""Of what is no count."""


def emit(group: str, values: Mapping[str, float], **dimensions: str) -> None:
    """Write one line with a group's metrics; ``dimensions`` are those beside group, stack and service."""
    metrics = EphemeralMetrics(namespace=names.METRIC_NAMESPACE)
    of = {"group": group, "stack": os.environ[names.ENV_STACK], **dimensions}
    for dimension, whose in of.items():
        metrics.add_dimension(name=dimension, value=whose)
    for name, value in values.items():
        metrics.add_metric(name, _UNITS.get(name, MetricUnit.Count), value)
    metrics.flush_metrics()
