"""Alarms of the health checker and of the incidents that it opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import FIVE_MINUTES, AlarmSpec, function_alarms, group_dimensions

MAX_REFUSED_PERCENT: Final = 10
"""The scaler staffs so that one request in ten is late at most, while On-Demand stands in for Spot, and fewer
at other times (docs/services.md, "Scaling"). A refused request is late by its whole deadline."""
REFUSED_MINUTES: Final = 15
"""Longer than a boot, for which a burst waits: as for ``<group>-at-maximum``."""


def alarms(stack: str, services: Mapping[str, bool], function: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of the health checker of a stack; ``services``: by name, whether it has a queue."""
    yield from function_alarms(
        "health", function, title="health checker", consequence="unhealthy workers are not detected."
    )
    for service, has_queue in services.items():
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
        if has_queue:
            yield AlarmSpec(
                f"{service}-requests-refused",
                f"For {REFUSED_MINUTES} minutes {MAX_REFUSED_PERCENT} % or more of the requests to {service} "
                "have been refused because they could not meet their deadline.",
                names.METRIC_NAMESPACE,
                names.METRIC_REQUESTS_REFUSED_SHARE,
                dimensions,
                "Minimum",
                threshold=MAX_REFUSED_PERCENT,
                periods=REFUSED_MINUTES,
                datapoints=REFUSED_MINUTES,
            )
