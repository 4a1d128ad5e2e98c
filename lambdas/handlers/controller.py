"""Lambda entry point of the availability checker: a batch of wake-ups from SQS, one pass over the stack."""

from __future__ import annotations

import json
import os
import time
from functools import cache, partial
from typing import Any

import boto3
from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit
from botocore.config import Config

from lambdas.aws.controller import Controller, GroupOutcome, StackPlace, build
from lambdas.core import names
from lambdas.core.events import Event, MalformedEventError, parse
from lambdas.core.model import Action, Alarm, Market

_CLIENT = Config(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=3, read_timeout=10)

logger = Logger(service="gpu-spot-controller")


def handler(event: dict[str, Any], _context: object) -> dict[str, list[dict[str, str]]]:
    """Handle one SQS batch; return the messages that SQS shall deliver again.

    A malformed message alone goes back, and after its retries to the dead-letter queue. Where a group could
    not be looked after all messages go back.
    """
    events: dict[str, Event] = {}
    malformed: list[str] = []
    for record in event["Records"]:
        try:
            events[record["messageId"]] = parse(json.loads(record["body"]))
        except (json.JSONDecodeError, MalformedEventError, TypeError, AttributeError) as error:
            logger.error("malformed event", extra={"message_id": record["messageId"], "error": str(error)})
            malformed.append(record["messageId"])
    outcomes = _controller().run(list(events.values()))
    for outcome in outcomes:
        _report(outcome)
    failed = [*malformed, *(events if any(o.error for o in outcomes) else ())]
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


@cache
def _controller() -> Controller:
    place = StackPlace(
        stack=os.environ[names.ENV_STACK],
        root=os.environ[names.ENV_PARAMETER_ROOT],
        memory_table=os.environ[names.ENV_MEMORY_TABLE],
        registry_table=os.environ[names.ENV_REGISTRY_TABLE],
        queue_url=os.environ[names.ENV_QUEUE_URL],
    )
    return build(partial(boto3.client, config=_CLIENT), place, time.time)


def _report(outcome: GroupOutcome) -> None:
    """Write one structured line for each decision, and the group's metrics."""
    if outcome.decision is None:
        logger.error("group not looked after", extra={"group": outcome.group}, exc_info=outcome.error)
        _count("ControllerErrors", outcome.group)
        return
    decision = outcome.decision
    situation = decision.situation
    facts = {
        "target": situation.group.target,
        "ready": situation.ready,
        "spot": situation.count(Market.SPOT),
        "on_demand": situation.count(Market.ON_DEMAND),
        "doomed": sum(situation.is_doomed(i) for i in situation.primary),
        "primary_desired": situation.primary_desired,
        "fallback_desired": situation.fallback_desired,
        "above_maximum": situation.above_maximum,
    }
    logger.info(
        "decision",
        extra={
            "group": outcome.group,
            "mode": situation.group.control.mode.value,
            "actions": [describe(action) for action in decision.actions],
            "carried_out": outcome.carried_out,
            "reason": decision.reason,
            "wake_at": decision.wake_at,
            **facts,
        },
    )
    for action in decision.actions:
        if isinstance(action, Alarm):
            logger.error(
                "alarm", extra={"group": outcome.group, "kind": action.kind, "reason": action.reason}
            )
            _count("Alarms", outcome.group)
    _gauge(outcome.group, facts)


def describe(action: Action) -> dict[str, Any]:
    """Return an action as a flat record for the log."""
    fields = {name: getattr(action, name) for name in action.__slots__}
    return {"action": type(action).__name__, **fields}


def _gauge(group: str, facts: dict[str, int]) -> None:
    metrics = _metrics(group)
    for name in ("target", "ready", "spot", "on_demand", "doomed", "above_maximum"):
        metrics.add_metric(name.title().replace("_", ""), MetricUnit.Count, facts[name])
    metrics.add_metric("Shortage", MetricUnit.Count, max(0, facts["target"] - facts["ready"]))
    metrics.flush_metrics()


def _count(name: str, group: str) -> None:
    metrics = _metrics(group)
    metrics.add_metric(name, MetricUnit.Count, 1)
    metrics.flush_metrics()


def _metrics(group: str) -> EphemeralMetrics:
    metrics = EphemeralMetrics(namespace=names.METRIC_NAMESPACE)
    metrics.add_dimension(name="group", value=group)
    metrics.add_dimension(name="stack", value=os.environ[names.ENV_STACK])
    return metrics
