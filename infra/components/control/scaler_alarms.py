"""Alarms of the scaler and of the services that it scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pulumi

from contracts import names
from infra.components.monitoring.alarm_spec import (
    REPEATED,
    AlarmSpec,
    Condition,
    function_alarms,
    of_function,
    undecided_alarm,
)

_FIVE_MINUTES: Final = Condition("Maximum", periods=5, datapoints=5)
_TEN_MINUTES: Final = Condition("Maximum", periods=10, datapoints=10)


def alarms(stack: str, services: Sequence[str], function: pulumi.Input[str]) -> Iterator[AlarmSpec]:
    """Yield the alarms of the scaler of a stack."""
    yield from function_alarms("scaler", function, title="scaler", consequence="targets do not change.")
    yield undecided_alarm("scaler", stack, names.SERVICE_SCALER, "scaler")
    for service in services:
        metrics = of_function(stack, service, names.SERVICE_SCALER)
        for alarm, metric, condition, description in (
            (
                "scaler-errors",
                names.METRIC_SCALING_ERRORS,
                REPEATED,
                f"The scaler fails for {service}; its log has the error.",
            ),
            (
                "load-unknown",
                names.METRIC_SCALING_LOAD_UNKNOWN,
                _FIVE_MINUTES,
                f"The load of {service} has been unknown for five minutes; its target is not lowered.",
            ),
            (
                "throughput-unknown",
                names.METRIC_SCALING_THROUGHPUT_UNKNOWN,
                _TEN_MINUTES,
                f"{service} has received requests for ten minutes, but the throughput of its workers is "
                "unknown; its target is not lowered.",
            ),
            (
                "at-maximum",
                names.METRIC_SCALING_AT_MAXIMUM,
                Condition("Maximum", periods=15, datapoints=15),
                f"The load of {service} has needed more than capacity.max allows for 15 minutes.",
            ),
        ):
            yield AlarmSpec(f"{service}-{alarm}", description, metrics, metric, condition)
