"""Alarms of the health checker and of the incidents that it opens."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import FIVE_MINUTES, AlarmSpec, function_alarms, group_dimensions


def alarms(stack: str, services: list[str], function: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of the health checker of a stack."""
    yield from function_alarms(
        "health", function, title="health checker", consequence="unhealthy workers are not detected."
    )
    for service in services:
        dimensions = group_dimensions(stack, service, names.SERVICE_HEALTH)
        yield AlarmSpec(
            f"{service}-unhealthy",
            f"Workers of {service} are unhealthy, and neither restarts nor replacements help. The message "
            "sent when the incident opened names the cause.",
            names.METRIC_NAMESPACE,
            names.METRIC_HEALTH_INCIDENTS,
            dimensions,
            "Maximum",
            threshold=1,
            period_seconds=FIVE_MINUTES,
            logical_name=f"{service}-unwell",
        )
        yield AlarmSpec(
            f"{service}-health-check-errors",
            f"The health checker fails for {service}; its log has the error.",
            names.METRIC_NAMESPACE,
            names.METRIC_HEALTH_ERRORS,
            dimensions,
            "Sum",
            threshold=1,
            periods=5,
            datapoints=3,
            logical_name=f"{service}-unchecked",
        )
