"""Lambda entry point of the health checker, which checks the workers of each service every minute."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import Final

from aws_lambda_powertools import Logger

from contracts import names
from lambdas.aws.health.checker import HealthChecker, HealthOutcome, build
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.model import ORIGINS, HealthSummary
from lambdas.handlers.metrics import emit, reporting
from lambdas.handlers.runtime import LambdaContext, client, stack_resources

_SPARE_SECONDS: Final = 10.0
"""Part of the function's timeout that is reserved for the work after the reads."""
_MAX_LOGGED_FINDINGS: Final = 50

logger = Logger(service="gpu-spot-health")


def handler(event: object, context: LambdaContext) -> None:
    """Check each service; errors are logged and counted in a metric, the function succeeds."""
    seconds = context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS
    _checker().run(seconds, reporting(_report, [], logger))


@cache
def _checker() -> HealthChecker:
    return build(client, stack_resources(names.ENV_TOPIC), time.time)


def _report(outcome: HealthOutcome) -> None:
    """Log findings, incidents and errors, and write the group's metrics."""
    for error in outcome.errors:
        text = "health check failed" if outcome.decision is None else "remediation failed"
        logger.error(text, extra={"group": outcome.group}, exc_info=error)
    for read_error in outcome.read_errors:
        logger.warning("observation incomplete", extra={"group": outcome.group, "read_error": read_error})
    if outcome.decision is None and not outcome.errors:
        return  # another execution has checked the group
    gauges = {names.METRIC_HEALTH_ERRORS: float(bool(outcome.errors))}
    if outcome.decision is not None:
        _log(outcome.group, outcome.decision)
        gauges |= {
            names.METRIC_HEALTH_FINDINGS: len({finding.host for finding in outcome.decision.findings}),
            names.METRIC_HEALTH_INCIDENTS: len(outcome.decision.open_incidents),
        }
        summary = outcome.decision.summary
        if (percent := summary.refused_percent) is not None:
            gauges[names.METRIC_REQUESTS_REFUSED_SHARE] = percent
        for origin, counts in workers_of(summary).items():
            if origin == names.ORIGIN_AWS or any(counts.values()):  # no series for hosts that there are not
                emit(outcome.group, counts, **{names.ORIGIN: origin})
        for reason, count in summary.stopped.items():
            emit(outcome.group, {names.METRIC_WORKERS_STOPPED: count}, **{names.STOP_REASON: reason})
    emit(outcome.group, gauges)


def workers_of(summary: HealthSummary) -> dict[str, dict[str, float]]:
    """Return the worker counts of a group and its refused requests by origin, as metrics."""
    by_metric: dict[str, Mapping[str, float]] = {
        names.METRIC_WORKERS_READY: summary.ready,
        names.METRIC_WORKERS_DRAINING: summary.draining,
        names.METRIC_WORKERS_NOT_REPORTING: summary.not_reporting,
        names.METRIC_REQUESTS_REFUSED: summary.refused,
    }
    return {origin: {name: counts.get(origin, 0) for name, counts in by_metric.items()} for origin in ORIGINS}


def _log(group: str, decision: HealthDecision) -> None:
    by_text = {"incident": decision.new_incidents, "incident resolved": decision.resolved_incidents}
    for text, incidents in by_text.items():
        for incident in incidents:
            fields = {"group": group, "incident": incident.key, "reason": incident.description}
            logger.error(text, extra=fields)
    if decision.findings:
        findings = [
            {"host": f.host, "verdict": f.kind.value, "since": f.since, "slots": f.slots}
            for f in decision.findings[:_MAX_LOGGED_FINDINGS]
        ]
        logger.info(
            "health",
            extra={
                "group": group,
                "findings": findings,
                "replacement_requests": [request.instance for request in decision.replacement_requests],
                "restarts": [f"{restart.instance}/{restart.slot}" for restart in decision.restarts],
                "open_incidents": [incident.key for incident in decision.open_incidents],
            },
        )
