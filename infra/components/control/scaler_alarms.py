"""Alarms of the scaler and of the services that it scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import AlarmSpec, function_alarms, group_dimensions


def alarms(stack: str, services: Sequence[str], function: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of the scaler of a stack."""
    yield from function_alarms("scaler", function, title="scaler", consequence="targets do not change.")
    for service in services:
        yield from _of_service(service, group_dimensions(stack, service, names.SERVICE_SCALER))


def _of_service(service: str, dimensions: dict[str, str]) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        f"{service}-scaler-errors",
        f"The scaler fails for {service}; its log has the error.",
        names.METRIC_NAMESPACE,
        names.METRIC_SCALING_ERRORS,
        dimensions,
        "Sum",
        threshold=1,
        periods=5,
        datapoints=3,
        logical_name=f"{service}-unscaled",
    )
    yield AlarmSpec(
        f"{service}-load-unknown",
        f"The load of {service} has been unknown for ten minutes; its target is not lowered.",
        names.METRIC_NAMESPACE,
        names.METRIC_SCALING_LOAD_UNKNOWN,
        dimensions,
        "Maximum",
        threshold=1,
        periods=10,
        datapoints=10,
    )
    yield AlarmSpec(
        f"{service}-throughput-unknown",
        f"{service} has received requests for ten minutes, but the throughput of its workers is unknown; "
        "its target is not lowered.",
        names.METRIC_NAMESPACE,
        names.METRIC_SCALING_THROUGHPUT_UNKNOWN,
        dimensions,
        "Maximum",
        threshold=1,
        periods=10,
        datapoints=10,
        logical_name=f"{service}-pace-unknown",
    )
    yield AlarmSpec(
        f"{service}-at-maximum",
        f"The load of {service} has needed more than capacity.max allows for 15 minutes.",
        names.METRIC_NAMESPACE,
        names.METRIC_SCALING_AT_MAXIMUM,
        dimensions,
        "Maximum",
        threshold=1,
        periods=15,
        datapoints=15,
    )
