"""EventBridge: events in AWS's format, delivered by the deployed rules to queues and functions."""

from __future__ import annotations

import copy
import fnmatch
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal, cast

from moto.awslambda.exceptions import UnknownFunctionException
from moto.awslambda.models import lambda_backends
from moto.events.models import Rule, events_backends
from moto.events.utils import EventMessageType, EventTemplateParser
from moto.moto_api._internal import mock_random
from moto.sqs.models import sqs_backends

from pulumi_on_moto.emulator import ACCOUNT
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes.functions import carry_by
from pulumi_on_moto.running.functions import FunctionRuntime

_MATCHES: Final = ("ArnEquals", "ArnLike", "StringEquals", "StringLike")
_EVENTS: Final = "events.amazonaws.com"


@lru_cache(maxsize=1024)
def admits(policy: str, action: str, rule_arn: str) -> bool:
    """Return whether a policy allows EventBridge an action for a rule.

    ``action`` is spelled like ``sqs:SendMessage``. Only conditions on ``aws:SourceArn`` are evaluated.
    """
    service = action.partition(":")[0]
    allowing = {item.lower() for item in (action, f"{service}:*", "*")}
    for statement in _as_list(json.loads(policy).get("Statement")):
        principal = statement.get("Principal")
        services = _as_list(principal.get("Service")) if isinstance(principal, dict) else _as_list(principal)
        actions = {item.lower() for item in _as_list(statement.get("Action"))}
        if (
            statement.get("Effect") == "Allow"
            and (_EVENTS in services or "*" in services)
            and actions & allowing
            and _source_matches(statement.get("Condition") or {}, rule_arn)
        ):
            return True
    return False


def _source_matches(condition: Mapping[str, Mapping[str, Any]], rule_arn: str) -> bool:
    for operator, tests in condition.items():
        for key, patterns in tests.items():
            if key.lower() != "aws:sourcearn" or operator not in _MATCHES:
                continue  # account conditions are met: there is one account
            if not any(fnmatch.fnmatchcase(rule_arn, pattern) for pattern in _as_list(patterns)):
                return False
    return True


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


BusEvent = dict[str, Any]


class EventBus:
    """The default event bus of the sandbox; ``functions`` are the targets that its rules may invoke.

    An undeliverable target raises an error, where AWS would count a failed invocation.
    """

    def __init__(self, region: str, functions: FunctionRuntime) -> None:
        self._region = region
        self._functions = functions
        self._events = events_backends[ACCOUNT][region]
        self._lambda = lambda_backends[ACCOUNT][region]
        self._queues = sqs_backends[ACCOUNT][region]
        carry_by(self._events, self._carry)

    def publish(self, event: BusEvent) -> int:
        """Deliver an event to the targets of every matching rule; return the number of deliveries."""
        count = 0
        for rule in self._rules():
            if rule.event_pattern.get_pattern() and rule.event_pattern.matches_event(
                cast(EventMessageType, event)
            ):
                count += self._deliver(rule, event)
        return count

    def tick(self, now: float) -> int:
        """Deliver the "Scheduled Event" of every rule with a schedule; return the number of deliveries."""
        return sum(
            self._deliver(rule, self.event("Scheduled Event", "aws.events", {}, now, [rule.arn]))
            for rule in self._rules()
            if rule.scheduled_expression
        )

    def event(
        self, detail_type: str, source: str, detail: Mapping[str, Any], now: float, resources: list[str]
    ) -> BusEvent:
        """Return an event in EventBridge's envelope; ``now`` is in epoch seconds."""
        return {
            "version": "0",
            "id": str(mock_random.uuid4()),
            "detail-type": detail_type,
            "source": source,
            "account": ACCOUNT,
            "time": _stamp(now),
            "region": self._region,
            "resources": resources,
            "detail": dict(detail),
        }

    def interruption_warning(self, instance_id: str, zone: str, now: float) -> BusEvent:
        """Two-minute interruption notice (EC2 user guide, "Spot Instance interruption notices")."""
        detail = {"instance-id": instance_id, "instance-action": "terminate"}
        # This event's ARN has the zone in place of region and account.
        arn = f"arn:aws:ec2:{zone}:instance/{instance_id}"
        return self.event("EC2 Spot Instance Interruption Warning", "aws.ec2", detail, now, [arn])

    def rebalance_recommendation(self, instance_id: str, zone: str, now: float) -> BusEvent:
        """Rebalance recommendation (EC2 user guide, "Rebalance recommendations")."""
        arn = f"arn:aws:ec2:{zone}:instance/{instance_id}"
        detail = {"instance-id": instance_id}
        return self.event("EC2 Instance Rebalance Recommendation", "aws.ec2", detail, now, [arn])

    def state_change(self, instance_id: str, state: str, now: float) -> BusEvent:
        """State change of an instance (EC2 user guide, "State change events")."""
        arn = self._arn(f"instance/{instance_id}")
        detail = {"instance-id": instance_id, "state": state}
        return self.event("EC2 Instance State-change Notification", "aws.ec2", detail, now, [arn])

    def scaling(
        self, event_name: str, group_arn: str, activity: Mapping[str, Any], instance_id: str, now: float
    ) -> BusEvent:
        """End of a scaling activity (Auto Scaling user guide, "Amazon EC2 Auto Scaling event reference").

        ``event_name`` is ``Launch Successful``, ``Launch Unsuccessful`` or ``Terminate Successful``;
        ``activity`` is as ``DescribeScalingActivities`` shows it.
        """
        launching = event_name.startswith("Launch")
        moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        detail = {
            "StatusCode": "Failed" if event_name.endswith("Unsuccessful") else "InProgress",
            "Description": activity["Description"],
            "AutoScalingGroupName": activity["AutoScalingGroupName"],
            "ActivityId": activity["ActivityId"],
            "RequestId": activity["ActivityId"],
            "StatusMessage": activity.get("StatusMessage", ""),
            "Details": json.loads(activity["Details"]),
            "EC2InstanceId": instance_id,
            "StartTime": moment,
            "EndTime": moment,
            "Cause": activity["Cause"],
            "Origin": "EC2" if launching else "AutoScalingGroup",
            "Destination": "AutoScalingGroup" if launching else "EC2",
        }
        instances = [self._arn(f"instance/{instance_id}")] if instance_id else []
        resources = [group_arn, *instances]
        return self.event(f"EC2 Instance {event_name}", "aws.autoscaling", detail, now, resources)

    def lifecycle_action(
        self,
        transition: Literal["launch", "terminate"],
        arn: str,
        group: str,
        hook: str,
        instance_id: str,
        now: float,
        outside: Literal["EC2", "WarmPool"] = "EC2",
    ) -> BusEvent:
        """Lifecycle action of an instance that waits for a hook; ``outside`` is its origin or destination.

        Auto Scaling user guide, "Lifecycle actions" and "Warm pool event types and event patterns".
        """
        inside = "AutoScalingGroup"
        launching = transition == "launch"
        detail = {
            "LifecycleActionToken": str(mock_random.uuid4()),
            "AutoScalingGroupName": group,
            "LifecycleHookName": hook,
            "EC2InstanceId": instance_id,
            "LifecycleTransition": f"autoscaling:EC2_INSTANCE_{'LAUNCHING' if launching else 'TERMINATING'}",
            "Origin": outside if launching else inside,
            "Destination": inside if launching else outside,
        }
        return self.event(
            f"EC2 Instance-{transition} Lifecycle Action", "aws.autoscaling", detail, now, [arn]
        )

    def fleet(self, event_name: str, fleet_id: str, detail: Mapping[str, Any], now: float) -> BusEvent:
        """An event of a Spot Fleet (EC2 user guide, "Spot Fleet event types").

        ``event_name`` is the last part of its type, for example ``Instance Change`` or ``Error``.
        """
        arn = self._arn(f"spot-fleet-request/{fleet_id}")
        return self.event(f"EC2 Spot Fleet {event_name}", "aws.ec2spotfleet", detail, now, [arn])

    def _arn(self, resource: str) -> str:
        return f"arn:aws:ec2:{self._region}:{ACCOUNT}:{resource}"

    def _rules(self) -> list[Rule]:
        bus = self._events.event_buses["default"]
        return [rule for rule in bus.rules.values() if rule.state == "ENABLED"]

    def _carry(self, rule: Rule, event: BusEvent) -> None:
        """Deliver an event of a client's PutEvents; moto's time is in epoch seconds."""
        fields = {key: value for key, value in event.items() if key != "ingestion-time"}
        self._deliver(rule, fields | {"time": _stamp(float(event["time"]))})

    def _deliver(self, rule: Rule, event: BusEvent) -> int:
        for target in rule.targets:
            arn, shaped = target["Arn"], _shaped(target, event)
            service = arn.split(":")[2]
            if service == "sqs":
                self._queues.send_message(self._queue(rule, arn), json.dumps(shaped))
            elif service == "lambda":
                self._functions.enqueue(self._function(rule, arn), shaped)
            else:
                raise LocalCloudError(
                    f"rule {rule.name!r}: target {arn} is not emulated, SQS queues and Lambda functions are"
                )
        return len(rule.targets)

    def _queue(self, rule: Rule, arn: str) -> str:
        name = arn.rpartition(":")[2]
        queue = self._queues.queues.get(name)
        if queue is None:
            raise LocalCloudError(f"rule {rule.name!r}: its target queue {name!r} does not exist")
        if str(getattr(queue, "kms_master_key_id", None)).startswith("alias/aws/"):
            raise LocalCloudError(f"queue {name!r}: EventBridge cannot use the AWS managed key of the queue")
        if not admits(queue.policy or "{}", "sqs:SendMessage", rule.arn):
            raise LocalCloudError(f"queue {name!r}: its policy does not let rule {rule.name!r} send messages")
        return name

    def _function(self, rule: Rule, arn: str) -> str:
        name = arn.split(":")[6]
        try:
            function = self._lambda.get_function(name)
        except UnknownFunctionException:
            raise LocalCloudError(
                f"rule {rule.name!r}: its target function {name!r} does not exist"
            ) from None
        if not admits(
            json.dumps({"Statement": function.policy.statements}), "lambda:InvokeFunction", rule.arn
        ):
            raise LocalCloudError(f"function {name!r}: its policy does not let rule {rule.name!r} invoke it")
        return name


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _shaped(target: Mapping[str, Any], event: BusEvent) -> Any:
    if target.get("Input") is not None:
        return json.loads(target["Input"])
    if target.get("InputPath") is not None:
        raise LocalCloudError(f"event target {target['Id']!r}: InputPath is not emulated locally")
    transformer = target.get("InputTransformer")
    if transformer:
        dated = {**copy.deepcopy(event), "ingestion-time": event["time"]}
        paths = transformer.get("InputPathsMap") or {}
        return EventTemplateParser.parse(transformer["InputTemplate"], paths, cast(EventMessageType, dated))
    return event
