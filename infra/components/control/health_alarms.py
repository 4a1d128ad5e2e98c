"""Alarms of the health checker and of the incidents that it opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import (
    PRESENT,
    REPEATED,
    AlarmSpec,
    Condition,
    function_alarms,
    of_function,
    undecided_alarm,
)

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
    yield undecided_alarm("health", stack, names.SERVICE_HEALTH, "health checker")
    for service, has_queue in services.items():
        metrics = of_function(stack, service, names.SERVICE_HEALTH)
        yield AlarmSpec(
            f"{service}-unhealthy",
            f"Workers of {service} are unhealthy, and neither restarts nor replacements help. The message "
            "sent when the incident opened names the cause.",
            metrics,
            names.METRIC_HEALTH_INCIDENTS,
            PRESENT,
        )
        failing = f"The health checker fails for {service}; its log has the error."
        yield AlarmSpec(
            f"{service}-health-check-errors", failing, metrics, names.METRIC_HEALTH_ERRORS, REPEATED
        )
        if has_queue:
            yield AlarmSpec(
                f"{service}-requests-refused",
                f"For {REFUSED_MINUTES} minutes {MAX_REFUSED_PERCENT} % or more of the requests to {service} "
                "have been refused because they could not meet their deadline.",
                metrics,
                names.METRIC_REQUESTS_REFUSED_SHARE,
                Condition("Minimum", MAX_REFUSED_PERCENT, REFUSED_MINUTES, REFUSED_MINUTES),
            )
