"""Lambda entry point of the scaler, which sets the targets of scaled services every minute."""

from __future__ import annotations

import time
from functools import cache
from typing import Final

from aws_lambda_powertools import Logger

from contracts import names
from lambdas.aws.scaler import Scaler, ScalerOutcome, build
from lambdas.core.scaling.model import Reason
from lambdas.handlers.metrics import emit, reporting
from lambdas.handlers.runtime import LambdaContext, client, stack_resources

_SPARE_SECONDS: Final = 10.0
"""Part of the function's timeout that is reserved for the work after the reads."""
_LOAD_UNKNOWN: Final = frozenset({Reason.QUEUE_UNKNOWN, Reason.LOG_UNKNOWN, Reason.HTTP_UNKNOWN})
_THROUGHPUT_UNKNOWN: Final = frozenset({Reason.THROUGHPUT_UNKNOWN, Reason.THROUGHPUT_STALE})

logger = Logger(service="gpu-spot-scaler")


def handler(event: object, context: LambdaContext) -> None:
    """Scale each service; errors are logged and counted in a metric, the function succeeds."""
    seconds = context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS
    _scaler().run(seconds, reporting(_report, [], logger))


@cache
def _scaler() -> Scaler:
    return build(client, stack_resources(), time.time)


def _report(outcome: ScalerOutcome) -> None:
    """Log the decision and the errors, and write the group's metrics."""
    if outcome.error is not None:
        logger.error("scaling failed", extra={"group": outcome.group}, exc_info=outcome.error)
        emit(outcome.group, {names.METRIC_SCALING_ERRORS: 1})
        return
    for read_error in outcome.read_errors:
        logger.warning("observation incomplete", extra={"group": outcome.group, "read_error": read_error})
    if outcome.decision is None:
        return  # another execution has decided
    fields = {
        "group": outcome.group,
        "previous_target": outcome.previous_target,
        "target": outcome.target,
        "desired": outcome.desired,
        "reasons": [reason.value for reason in outcome.decision.reasons],
        "requests_per_second": round(outcome.decision.expected_rate, 3),
        "worker_per_second": round(outcome.decision.worker_rate, 4),
        "written": outcome.is_written,
        "dry_run": outcome.dry_run,
    }
    (logger.warning if outcome.decision.is_alarm else logger.info)("scaling", extra=fields)
    emit(outcome.group, gauges(outcome, frozenset(outcome.decision.reasons)))


def gauges(outcome: ScalerOutcome, reasons: frozenset[Reason]) -> dict[str, float]:
    """Return the metrics of a decision."""
    desired = {} if outcome.desired is None else {names.METRIC_SCALING_DESIRED: float(outcome.desired)}
    return {
        names.METRIC_SCALING_TARGET: outcome.target,
        names.METRIC_SCALING_LOAD_UNKNOWN: float(bool(reasons & _LOAD_UNKNOWN)),
        names.METRIC_SCALING_THROUGHPUT_UNKNOWN: float(bool(reasons & _THROUGHPUT_UNKNOWN)),
        names.METRIC_SCALING_AT_MAXIMUM: float(Reason.CEILING in reasons),
        names.METRIC_SCALING_ERRORS: 0.0,
        **desired,
    }
