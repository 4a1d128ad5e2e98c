"""CloudWatch metrics, written to the functions' logs in embedded metric format."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from contracts import names
from lambdas.aws.passes import OutcomeT, Reporting

_UNITS = {
    names.METRIC_QUEUE_OLDEST_MESSAGE_AGE: MetricUnit.Seconds,
    names.METRIC_QUEUE_PUBLISH_RATE: MetricUnit.CountPerSecond,
    names.METRIC_QUEUE_ACK_RATE: MetricUnit.CountPerSecond,
    names.METRIC_REQUESTS_REFUSED: MetricUnit.CountPerSecond,
    names.METRIC_REQUESTS_REFUSED_SHARE: MetricUnit.Percent,
    names.METRIC_UNDECIDED_SECONDS: MetricUnit.Seconds,
    names.METRIC_HOURLY_COST: MetricUnit.NoUnit,
    names.METRIC_HOURLY_COST_ON_DEMAND: MetricUnit.NoUnit,
}
"""Units other than counts."""
_LATE_SECONDS: Final = 120.0
"""Age of the oldest decision from which it is a metric: a pass a minute has 60."""


def emit(group: str, values: Mapping[str, float], **dimensions: str) -> None:
    """Write a group's metrics as one line; ``dimensions`` are added to group, stack and service.

    Without a group they are metrics of the function. What is not a series (`names.is_series`) is left out.
    """
    series = {name: value for name, value in values.items() if names.is_series(name, [value])}
    if not series:
        return
    metrics = EphemeralMetrics(namespace=names.METRIC_NAMESPACE)
    of_group = {"group": group} if group else {}
    all_dimensions = {**of_group, "stack": os.environ[names.ENV_STACK], **dimensions}
    for dimension, dimension_value in all_dimensions.items():
        metrics.add_dimension(name=dimension, value=dimension_value)
    for name, value in series.items():
        metrics.add_metric(name, _UNITS.get(name, MetricUnit.Count), value)
    metrics.flush_metrics()


def reporting(
    outcome: Callable[[OutcomeT], None], unserved: list[str], logger: Logger
) -> Reporting[OutcomeT]:
    """Return what writes logs and metrics while a pass runs; it extends ``unserved``."""

    def report_unserved(groups: Sequence[str]) -> None:
        unserved.extend(groups)
        logger.warning("groups left for the next pass", extra={"count": len(groups), "first": groups[:10]})

    def report_undecided(seconds: float) -> None:
        if seconds >= _LATE_SECONDS:
            emit("", {names.METRIC_UNDECIDED_SECONDS: seconds})

    return Reporting(outcome, report_undecided, report_unserved)
