"""What wakes a person because of the scaler, or of what it found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import AlarmSpec, group_dimensions, of_function


def alarms(stack: str, services: Sequence[str], function: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of the scaler of a stack."""
    yield from of_function("scaler", function, who="scaler", silent="targets stay as they are.")
    for service in services:
        yield from _of_service(service, group_dimensions(stack, service, names.SERVICE_SCALER))


def _of_service(service: str, of: dict[str, str]) -> Iterator[AlarmSpec]:
    yield AlarmSpec(
        f"{service}-unscaled",
        f"The scaler cannot look after {service}; its log says why.",
        names.METRIC_NAMESPACE,
        names.METRIC_SCALING_ERRORS,
        of,
        "Sum",
        at_least=1,
        periods=5,
        needed=3,
    )
    yield AlarmSpec(
        f"{service}-load-unknown",
        f"For ten minutes nobody knows what {service} is asked: its target is held.",
        names.METRIC_NAMESPACE,
        names.METRIC_SCALING_BLIND,
        of,
        "Maximum",
        at_least=1,
        periods=10,
        needed=10,
    )
    yield AlarmSpec(
        f"{service}-pace-unknown",
        f"For ten minutes {service} is asked, and nobody knows what its workers do: its target is held.",
        names.METRIC_NAMESPACE,
        names.METRIC_SCALING_STALE,
        of,
        "Maximum",
        at_least=1,
        periods=10,
        needed=10,
    )
    yield AlarmSpec(
        f"{service}-at-maximum",
        f"For 15 minutes {service} has been asked for more than capacity.max leaves room for.",
        names.METRIC_NAMESPACE,
        names.METRIC_SCALING_CEILING,
        of,
        "Maximum",
        at_least=1,
        periods=15,
        needed=15,
    )
