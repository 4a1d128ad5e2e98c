"""Lambda entry point of the availability checker: a batch of wake-ups from SQS, one pass over the stack."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from contracts import names
from lambdas.aws.capacity.controller import Controller, GroupOutcome, StackPlace, build
from lambdas.aws.capacity.wake_up_messages import RETRY_SECONDS
from lambdas.core.capacity.policies import by_deadline
from lambdas.core.events import Event, Wake, parse
from lambdas.core.model import Action, Alarm, Market, SetDesired, Side
from lambdas.core.money import bill
from lambdas.handlers.clients import PATIENT, client
from lambdas.handlers.context import LambdaContext
from lambdas.handlers.metrics import emit

_QUEUE = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=1, read_timeout=2)
"""The wake-up is sent before capacity is moved: a queue that hangs must not hold that up."""
_MINUTE: Final = Wake("Scheduled Event")
_SPARE_SECONDS: Final = 10.0
"""Of the function's time, for metrics and for messages that go back."""

logger = Logger(service="gpu-spot-controller")


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
    """Handle one SQS batch; return the messages that SQS shall deliver again.

    A malformed message alone goes back, and after its retries to the dead-letter queue. Where something
    failed that may pass by itself, the messages that say something of an instance go back, and are received
    again within a minute; those that merely wake do not, but the schedule's is followed by two of our own.
    """
    controller = _controller()
    marking: dict[str, str] = {}
    events: list[Event] = []
    malformed: list[str] = []
    for record in event["Records"]:
        try:
            parsed = parse(json.loads(record["body"]))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            told = str(error)[:80]
            logger.error("malformed event", extra={"message_id": record["messageId"], "error": told})
            malformed.append(record["messageId"])
            continue
        events.append(parsed)
        if not isinstance(parsed, Wake):
            marking[record["messageId"]] = record["receiptHandle"]
    try:
        outcomes = controller.run(events, context.get_remaining_time_in_millis() / 1000 - _SPARE_SECONDS)
    except Exception:
        _again(controller, events, marking)
        raise
    for outcome in outcomes:
        _report(outcome)
    failed: Mapping[str, str] = {}
    if any(outcome.is_worth_another_try for outcome in outcomes):
        failed = marking
        _again(controller, events, failed)
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in (*malformed, *failed)]}


def _again(controller: Controller, events: Sequence[Event], marking: Mapping[str, str]) -> None:
    """Look again soon: what marks an instance comes back, and the minute's own wake-up is repeated."""
    try:
        controller.alarm_clock.again(list(marking.values()))
        if _MINUTE in events:
            for seconds in range(RETRY_SECONDS, 60, RETRY_SECONDS):
                controller.alarm_clock.set(seconds)
    except (BotoCoreError, ClientError) as error:
        # Messages come back all the same, after the queue's own timeout, and the next minute comes.
        logger.warning("not looked at again soon", extra={"messages": list(marking), "error": str(error)})


@cache
def _controller() -> Controller:
    place = StackPlace(
        stack=os.environ[names.ENV_STACK],
        root=os.environ[names.ENV_PARAMETER_ROOT],
        memory_table=os.environ[names.ENV_MEMORY_TABLE],
        registry_table=os.environ[names.ENV_REGISTRY_TABLE],
        queue_url=os.environ[names.ENV_QUEUE_URL],
    )
    return build(lambda service: client(service, _QUEUE if service == "sqs" else PATIENT), place, time.time)


def _report(outcome: GroupOutcome) -> None:
    """Write one structured line for each decision, and the group's metrics."""
    for error in outcome.errors:
        said = "group not looked after" if outcome.decision is None else "action failed"
        logger.error(said, extra={"group": outcome.group, "looks": outcome.looks}, exc_info=error)
    if outcome.errors:
        emit(outcome.group, {"ControllerErrors": 1})
    if outcome.decision is None:
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
            "looks": outcome.looks,
            **facts,
        },
    )
    for action in decision.actions:
        if isinstance(action, Alarm):
            logger.error(
                "alarm", extra={"group": outcome.group, "kind": action.kind, "reason": action.reason}
            )
    for trouble in outcome.troubles:
        logger.warning("not all was read", extra={"group": outcome.group, "trouble": trouble})
    emit(outcome.group, gauges(outcome, facts))


def gauges(outcome: GroupOutcome, facts: Mapping[str, int]) -> dict[str, float]:
    """Return a pass's metrics of a group that was looked after: counts, and what it costs."""
    told = ("target", "ready", "spot", "on_demand", "doomed", "above_maximum")
    return {
        **{name.title().replace("_", ""): facts[name] for name in told},
        "Shortage": 0 if _waits(outcome) else max(0, facts["target"] - facts["ready"]),
        "AlarmCauses": outcome.causes,
        "Troubles": len(outcome.troubles),
        **_of_deadline(outcome),
        **_money(outcome),
        **_of_budget(outcome),
    }


def _waits(outcome: GroupOutcome) -> bool:
    """Tell whether a job waits for spot by choice: there is time, and on-demand was not even asked for."""
    decision = outcome.decision
    if decision is None or decision.situation.group.deadline is None:
        return False
    situation = decision.situation
    asks = any(isinstance(a, SetDesired) and a.side is Side.FALLBACK for a in decision.actions)
    is_calm = decision.memory.alarmed.isdisjoint(by_deadline.ALARMS)
    return is_calm and not (asks or situation.primary or situation.committed_fallback)


def _of_deadline(outcome: GroupOutcome) -> dict[str, int]:
    """Return what is wrong with a job's deadline, 0 or 1; nothing for who has none."""
    decision = outcome.decision
    if decision is None or decision.situation.group.deadline is None:
        return {}
    return {names.METRIC_DEADLINE: len(decision.memory.alarmed.intersection(by_deadline.ALARMS))}


def _money(outcome: GroupOutcome) -> dict[str, float]:
    """Return what a group costs; nothing where nobody knows."""
    if outcome.cost is None:
        return {}
    return {
        names.METRIC_HOURLY_COST: outcome.cost.paid,
        names.METRIC_HOURLY_COST_ON_DEMAND: outcome.cost.on_demand,
    }


def _of_budget(outcome: GroupOutcome) -> dict[str, int]:
    """Return how much is wrong with a job's budget; nothing for who has none."""
    decision = outcome.decision
    if decision is None or decision.situation.group.budget is None:
        return {}
    return {names.METRIC_BUDGET: len(decision.memory.alarmed.intersection(bill.ALARMS))}


def describe(action: Action) -> dict[str, Any]:
    """Return an action as a flat record for the log."""
    fields = {name: getattr(action, name) for name in action.__slots__}
    return {"action": type(action).__name__, **fields}
