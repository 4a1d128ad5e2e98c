"""Lambda entry point of the health checker: each minute one look at the workers of every service."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Final

from aws_lambda_powertools import Logger

from contracts import names
from lambdas.aws.health.checker import HealthChecker, HealthOutcome, HealthPlace, build
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.model import ORIGINS, Facts
from lambdas.handlers.clients import client
from lambdas.handlers.context import LambdaContext
from lambdas.handlers.metrics import emit

_SPARE_SECONDS: Final = 10.0
"""Of the function's time, for what is done once all is read."""
_MOST_LOGGED: Final = 50

logger = Logger(service="gpu-spot-health")


def handler(event: object, context: LambdaContext) -> None:
    """Look after every service; what fails for one is told in the log and in a metric, and is no error."""
    for outcome in _checker().run(context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS):
        _report(outcome)


@cache
def _checker() -> HealthChecker:
    place = HealthPlace(
        stack=os.environ[names.ENV_STACK],
        root=os.environ[names.ENV_PARAMETER_ROOT],
        memory_table=os.environ[names.ENV_MEMORY_TABLE],
        registry_table=os.environ[names.ENV_REGISTRY_TABLE],
        topic=os.environ[names.ENV_TOPIC],
    )
    return build(client, place, time.time)


def _report(outcome: HealthOutcome) -> None:
    """Write a line for whatever happened, none for a group that is well; and the group's metrics."""
    for error in outcome.errors:
        said = "health not looked after" if outcome.decision is None else "treatment failed"
        logger.error(said, extra={"group": outcome.group}, exc_info=error)
    for trouble in outcome.troubles:
        logger.warning("not all was read", extra={"group": outcome.group, "trouble": trouble})
    if outcome.decision is None and not outcome.errors:
        return  # another copy has looked
    gauges = {names.METRIC_HEALTH_ERRORS: float(bool(outcome.errors))}
    if outcome.decision is not None:
        _log(outcome.group, outcome.decision)
        gauges |= {
            names.METRIC_HEALTH_FINDINGS: len({finding.host for finding in outcome.decision.findings}),
            names.METRIC_HEALTH_INCIDENTS: len(outcome.decision.standing),
        }
        for origin, counted in workers_of(outcome.decision.facts).items():
            emit(outcome.group, counted, **{names.ORIGIN: origin})
    emit(outcome.group, gauges)


def workers_of(facts: Facts) -> dict[str, dict[str, int]]:
    """Return the metrics of a group's workers by where they run."""
    counted = {
        names.METRIC_WORKERS_READY: facts.ready,
        names.METRIC_WORKERS_DRAINING: facts.draining,
        names.METRIC_WORKERS_SILENT: facts.silent,
    }
    return {origin: {name: known.get(origin, 0) for name, known in counted.items()} for origin in ORIGINS}


def _log(group: str, decision: HealthDecision) -> None:
    for what, incidents in (("incident", decision.begun), ("incident over", decision.over)):
        for one in incidents:
            logger.error(what, extra={"group": group, "incident": one.key, "reason": one.what})
    if decision.findings:
        found = [
            {"host": f.host, "verdict": f.kind.value, "since": f.since, "slots": f.slots}
            for f in decision.findings[:_MOST_LOGGED]
        ]
        logger.info(
            "health",
            extra={
                "group": group,
                "findings": found,
                "wishes": [wish.instance for wish in decision.wishes],
                "restarts": [f"{one.instance}/{one.slot}" for one in decision.restarts],
                "standing": [one.key for one in decision.standing],
            },
        )
