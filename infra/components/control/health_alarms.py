"""What wakes a person because of the health checker, or of what it found."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import FIVE_MINUTES, AlarmSpec, group_dimensions, of_function


def alarms(stack: str, services: list[str], function: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of the health checker of a stack."""
    silent = "nobody notices workers that do not work."
    yield from of_function("health", function, who="health checker", silent=silent)
    for service in services:
        dimensions = group_dimensions(stack, service, names.SERVICE_HEALTH)
        yield AlarmSpec(
            f"{service}-unwell",
            f"Something is wrong with {service} that neither restarts nor replacements mend; a message "
            "said what when it began.",
            names.METRIC_NAMESPACE,
            names.METRIC_HEALTH_INCIDENTS,
            dimensions,
            "Maximum",
            at_least=1,
            period=FIVE_MINUTES,
        )
        yield AlarmSpec(
            f"{service}-unchecked",
            f"The health checker cannot look after {service}; its log says why.",
            names.METRIC_NAMESPACE,
            names.METRIC_HEALTH_ERRORS,
            dimensions,
            "Sum",
            at_least=1,
            periods=5,
            needed=3,
        )
