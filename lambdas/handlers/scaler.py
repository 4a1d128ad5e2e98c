"""Lambda entry point of the scaler: each minute one look at every service that scales, and its target."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Final

from aws_lambda_powertools import Logger

from contracts import names
from lambdas.aws.scaler import Scaler, ScalerOutcome, ScalerPlace, build
from lambdas.core.scaling.model import Reason
from lambdas.handlers.clients import client
from lambdas.handlers.context import LambdaContext
from lambdas.handlers.metrics import emit

_SPARE_SECONDS: Final = 10.0
"""Of the function's time, for what is done once all is read."""
_BLIND: Final = frozenset({Reason.QUEUE_UNKNOWN})
_STALE: Final = frozenset({Reason.THROUGHPUT_UNKNOWN, Reason.THROUGHPUT_STALE})

logger = Logger(service="gpu-spot-scaler")


def handler(event: object, context: LambdaContext) -> None:
    """Scale each service that does; what fails for one is told in the log and in a metric."""
    for outcome in _scaler().run(context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS):
        _report(outcome)


@cache
def _scaler() -> Scaler:
    place = ScalerPlace(
        stack=os.environ[names.ENV_STACK],
        root=os.environ[names.ENV_PARAMETER_ROOT],
        memory_table=os.environ[names.ENV_MEMORY_TABLE],
        registry_table=os.environ[names.ENV_REGISTRY_TABLE],
    )
    return build(client, place, time.time)


def _report(outcome: ScalerOutcome) -> None:
    """Write a line for each decision and for what went wrong, and the group's metrics."""
    if outcome.error is not None:
        logger.error("not scaled", extra={"group": outcome.group}, exc_info=outcome.error)
        emit(outcome.group, {names.METRIC_SCALING_ERRORS: 1})
        return
    for trouble in outcome.troubles:
        logger.warning("not all was read", extra={"group": outcome.group, "trouble": trouble})
    if outcome.decision is None:
        return  # another copy has decided
    told = {
        "group": outcome.group,
        "before": outcome.before,
        "target": outcome.target,
        "wanted": outcome.wanted,
        "reasons": [reason.value for reason in outcome.decision.reasons],
        "requests_per_second": round(outcome.decision.rate, 3),
        "worker_per_second": round(outcome.decision.each, 4),
        "written": outcome.written,
        "dry_run": outcome.dry_run,
    }
    (logger.warning if outcome.decision.rings else logger.info)("scaling", extra=told)
    emit(outcome.group, gauges(outcome, frozenset(outcome.decision.reasons)))


def gauges(outcome: ScalerOutcome, reasons: frozenset[Reason]) -> dict[str, float]:
    """Return a decision's metrics."""
    wanted = {} if outcome.wanted is None else {names.METRIC_SCALING_WANTED: float(outcome.wanted)}
    return {
        names.METRIC_SCALING_TARGET: outcome.target,
        names.METRIC_SCALING_BLIND: float(bool(reasons & _BLIND)),
        names.METRIC_SCALING_STALE: float(bool(reasons & _STALE)),
        names.METRIC_SCALING_CEILING: float(Reason.CEILING in reasons),
        names.METRIC_SCALING_ERRORS: 0.0,
        **wanted,
    }
