"""Lambda entry point of the controller: a batch of messages from SQS starts a pass over the stack."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from contracts import names
from lambdas.aws.capacity.controller import Controller, GroupOutcome, build
from lambdas.aws.capacity.wake_up_messages import RETRY_SECONDS
from lambdas.core.capacity.alarms import ON_DEMAND_ONLY
from lambdas.core.capacity.policies import by_deadline
from lambdas.core.events import Event, WakeUp, parse
from lambdas.core.model import Alarm, PurchaseOption, describe
from lambdas.core.money import bill
from lambdas.handlers.metrics import emit, reporting
from lambdas.handlers.runtime import LambdaContext, client, stack_resources

_SQS_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=1, read_timeout=2)
"""Wake-ups are scheduled before capacity changes: a slow call must not delay these."""
_SCHEDULED: Final = WakeUp("Scheduled Event")
_SPARE_SECONDS: Final = 40.0
"""Part of the function's timeout that is reserved for what has begun: a call that hangs takes 36 s, with its
retries (`runtime.DEFAULT_CONFIG`), and must not end between a saved memory and its correction."""

_FACT_METRICS: Final = {
    "target": "Target",
    "ready": "Ready",
    "spot": names.METRIC_SPOT,
    "on_demand": names.METRIC_ON_DEMAND,
    "interrupted": names.METRIC_INTERRUPTED_INSTANCES,
    "above_maximum": names.METRIC_ABOVE_MAXIMUM,
}
"""The fields of a ``decision`` log line that are also metrics."""

logger = Logger(service="gpu-spot-controller")


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
    """Handle an SQS batch; return the messages that SQS must redeliver (partial batch response).

    A malformed message is redelivered, and dead-lettered after its retries. After a retryable error the
    messages about instances are redelivered within a minute. Wake-ups are not, but after a scheduled one two
    more are sent.
    """
    controller = _controller()
    instance_events: dict[str, str] = {}
    events: list[Event] = []
    malformed: list[str] = []
    for record in event["Records"]:
        try:
            parsed = parse(json.loads(record["body"]))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            fields = {"message_id": record["messageId"], "error": str(error)[:80]}
            logger.error("malformed event", extra=fields)
            malformed.append(record["messageId"])
            continue
        events.append(parsed)
        if not isinstance(parsed, WakeUp):
            instance_events[record["messageId"]] = record["receiptHandle"]
    unserved: list[str] = []
    seconds = context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS
    try:
        outcomes = controller.run(events, seconds, reporting(_report, unserved, logger))
    except Exception:
        _retry_soon(controller, events, instance_events)
        raise
    failed: Mapping[str, str] = {}
    if any(outcome.is_retryable for outcome in outcomes):
        failed = instance_events
        # After a pass that was too short two more would be as short, and the next minute's comes anyway.
        _retry_soon(controller, () if unserved else events, failed)
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in (*malformed, *failed)]}


def _retry_soon(controller: Controller, events: Sequence[Event], instance_events: Mapping[str, str]) -> None:
    """Return messages about instances to the queue, and schedule wake-ups within the minute."""
    try:
        controller.wake_ups.retry_soon(list(instance_events.values()))
        if _SCHEDULED in events:
            for seconds in range(RETRY_SECONDS, 60, RETRY_SECONDS):
                controller.wake_ups.schedule(seconds)
    except (BotoCoreError, ClientError) as error:
        # The messages are still redelivered after the queue's visibility timeout.
        logger.warning("retry not scheduled", extra={"messages": list(instance_events), "error": str(error)})


@cache
def _controller() -> Controller:
    return build(_client, stack_resources(names.ENV_QUEUE_URL), time.time)


def _client(service: str) -> Any:
    created = client(service, _SQS_CONFIG if service == "sqs" else None)
    if service == "sqs":
        # One wake-up schedules the next: by this header Lambda counts them, and drops what follows the 16th.
        # Source: Lambda guide, "Use Lambda recursive loop detection to prevent infinite loops".
        created.meta.events.register("before-sign.sqs", _remove_trace)
    return created


def _remove_trace(request: AWSRequest, **_: Any) -> None:
    del request.headers["X-Amzn-Trace-Id"]


def _report(outcome: GroupOutcome) -> None:
    """Log the decision and the errors, and write the group's metrics."""
    for error in outcome.errors:
        text = "group not reconciled" if outcome.decision is None else "action failed"
        logger.error(text, extra={"group": outcome.group, "attempts": outcome.attempts}, exc_info=error)
    if outcome.errors:
        emit(outcome.group, {"ControllerErrors": 1})
    if outcome.decision is None:
        return
    decision = outcome.decision
    state = decision.state
    facts = {
        "target": state.group.target,
        "ready": state.ready,
        "spot": state.count_slots(PurchaseOption.SPOT),
        "on_demand": state.count_slots(PurchaseOption.ON_DEMAND),
        "interrupted": sum(state.is_interrupted(i) for i in state.primary),
        "primary_desired": state.primary_desired,
        "fallback_desired": state.fallback_desired,
        "above_maximum": state.above_maximum,
    }
    logger.info(
        "decision",
        extra={
            "group": outcome.group,
            "mode": state.group.control.mode.value,
            "actions": [describe(action) for action in decision.actions],
            "carried_out": outcome.is_applied,
            "reason": decision.reason,
            "wake_at": decision.next_run_at,
            "attempts": outcome.attempts,
            **facts,
        },
    )
    for action in decision.actions:
        if isinstance(action, Alarm):
            logger.error(
                "alarm", extra={"group": outcome.group, "kind": action.kind, "reason": action.reason}
            )
    for read_error in outcome.read_errors:
        logger.warning("observation incomplete", extra={"group": outcome.group, "read_error": read_error})
    if not outcome.rests_until:  # no series for a job that has ended
        emit(outcome.group, gauges(outcome, facts))


def gauges(outcome: GroupOutcome, facts: Mapping[str, int]) -> dict[str, float]:
    """Return a group's metrics: counts, and hourly cost if it is known."""
    decision = outcome.decision
    causes = frozenset() if decision is None else decision.memory.active_alarms
    is_waiting = decision is not None and by_deadline.is_waiting(decision.state, decision.actions, causes)
    shortage = 0 if is_waiting else max(0, facts["target"] - facts["ready"])
    counts: dict[str, float] = {
        **{metric: facts[field] for field, metric in _FACT_METRICS.items()},
        names.METRIC_SHORTAGE: shortage,
        names.METRIC_ALARM_CAUSES: outcome.alarm_causes,
        names.METRIC_READ_ERRORS: len(outcome.read_errors),
        names.METRIC_DEADLINE_AT_RISK: len(causes.intersection(by_deadline.ALARMS)),
        names.METRIC_BUDGET_AT_RISK: len(causes.intersection(bill.ALARMS)),
        names.METRIC_ON_DEMAND_ONLY: int(ON_DEMAND_ONLY in causes),
    }
    if outcome.cost is None:
        return counts
    hourly = {names.METRIC_HOURLY_COST: outcome.cost.paid}
    return {**counts, **hourly, names.METRIC_HOURLY_COST_ON_DEMAND: outcome.cost.on_demand}
