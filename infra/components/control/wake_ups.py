"""The controller's wake-up queue, fed by EventBridge rules and a schedule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from infra.iam import resource_policies
from infra.iam.statement import document
from infra.scope import Scope

_DAY: Final = 86_400
_RETENTION_SECONDS: Final = 3600
"""The schedule sends a wake-up each minute, so older ones have no value."""
_MAX_RECEIVE_COUNT: Final = 5
"""Source: the Lambda guide recommends at least five."""
_SCHEDULED_CHANGES: Final = tuple(
    f"AWS_EC2_{change}"
    for change in (
        "INSTANCE_RETIREMENT",
        "INSTANCE_STOP",
        "INSTANCE_TERMINATION",
        "INSTANCE_REBOOT",
        "INSTANCE_POWER_MAINTENANCE",
        "PERSISTENT_INSTANCE_RETIREMENT",
        "PERSISTENT_INSTANCE_POWER_MAINTENANCE",
        "SYSTEM_REBOOT",
    )
)
"""AWS Health codes of scheduled changes that end an instance or its work, without their suffixes
(``_SCHEDULED``, ``_MAINTENANCE_SCHEDULED``, ``_EXPEDITED`` …). Network maintenance is excluded."""
_FLEET_EVENTS: Final = (
    "EC2 Spot Fleet State Change",
    "EC2 Spot Fleet Spot Instance Request Change",
    "EC2 Spot Fleet Instance Change",
    "EC2 Spot Fleet Error",
)
"""Without "Information" events, which are about prices."""


@dataclass(frozen=True)
class WakeUpsArgs:
    """``visibility_seconds`` is the visibility timeout; ``has_fleets`` adds events of Spot Fleets."""

    scope: Scope
    visibility_seconds: int
    has_fleets: bool


class WakeUps(pulumi.ComponentResource):
    """A queue and a dead-letter queue with their policies, and a rule and target for each kind of event."""

    queue_arn: pulumi.Output[str]
    queue_url: pulumi.Output[str]
    queue_name: pulumi.Output[str]
    dead_letter_url: pulumi.Output[str]
    dead_letter_name: pulumi.Output[str]
    dead_letter_arn: pulumi.Output[str]

    def __init__(self, name: str, args: WakeUpsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the queues and rules."""
        super().__init__("gpu-spot:infra:WakeUps", name, None, opts)
        self._scope, self._child = args.scope, pulumi.ResourceOptions(parent=self)
        dead_letters = self._queue("dead-letters", retention=14 * _DAY)
        queue = self._queue(
            "wake-ups",
            retention=_RETENTION_SECONDS,
            visibility=args.visibility_seconds,
            redrive=pulumi.Output.json_dumps(
                {"deadLetterTargetArn": dead_letters.arn, "maxReceiveCount": _MAX_RECEIVE_COUNT}
            ),
        )
        patterns = event_patterns(args.scope.prefix, has_fleets=args.has_fleets)
        rules = [self._rule(short, pattern) for short, pattern in patterns.items()]
        rules.append(self._rule("every-minute", None))
        self._policy("wake-ups", queue, rules)
        self._policy("dead-letters", dead_letters, rules)
        for short, rule in rules:
            aws.cloudwatch.EventTarget(
                self._scope.name(short),
                rule=rule.name,
                arn=queue.arn,
                dead_letter_config=aws.cloudwatch.EventTargetDeadLetterConfigArgs(arn=dead_letters.arn),
                opts=self._child,
            )
        self.queue_arn, self.queue_url, self.dead_letter_url = queue.arn, queue.url, dead_letters.url
        self.queue_name, self.dead_letter_name = queue.name, dead_letters.name
        self.dead_letter_arn = dead_letters.arn
        self.register_outputs({"queueUrl": self.queue_url, "deadLetterUrl": self.dead_letter_url})

    def _queue(
        self,
        short: str,
        *,
        retention: int,
        visibility: int | None = None,
        redrive: pulumi.Output[str] | None = None,
    ) -> aws.sqs.Queue:
        name, key = self._scope.name(short), self._scope.kms_key_arn
        return aws.sqs.Queue(
            name,
            message_retention_seconds=retention,
            visibility_timeout_seconds=visibility,
            redrive_policy=redrive,
            # Not the AWS managed KMS key: EventBridge cannot send to a queue encrypted with it.
            kms_master_key_id=key,
            sqs_managed_sse_enabled=True if key is None else None,
            tags=self._scope.tags(name),
            opts=self._child,
        )

    def _rule(self, short: str, pattern: Mapping[str, Any] | None) -> tuple[str, aws.cloudwatch.EventRule]:
        name = self._scope.name(short)
        rule = aws.cloudwatch.EventRule(
            name,
            description="Sends wake-ups to the capacity controller",
            event_pattern=json.dumps(pattern) if pattern else None,
            schedule_expression=None if pattern else "rate(1 minute)",
            tags=self._scope.tags(name),
            opts=self._child,
        )
        return short, rule

    def _policy(
        self, short: str, queue: aws.sqs.Queue, rules: list[tuple[str, aws.cloudwatch.EventRule]]
    ) -> None:
        aws.sqs.QueuePolicy(
            self._scope.name(short),
            queue_url=queue.url,
            policy=document(resource_policies.queue(queue.arn, [rule.arn for _, rule in rules])),
            opts=self._child,
        )


def event_patterns(group_prefix: str, *, has_fleets: bool) -> dict[str, dict[str, Any]]:
    """Return EventBridge patterns by short name.

    Events of EC2 and Spot Fleets have no tags, so those of the whole account match; events of instances of
    other stacks are wake-ups only.
    """
    by_name = {"AutoScalingGroupName": [{"prefix": group_prefix}]}
    patterns: dict[str, dict[str, Any]] = {
        "interruption": {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]},
        "rebalance": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance Rebalance Recommendation"]},
        "state-change": {
            "source": ["aws.ec2"],
            "detail-type": ["EC2 Instance State-change Notification"],
            # Losses only: that an instance runs does not mean that its workers are ready.
            "detail": {"state": ["stopping", "shutting-down", "terminated"]},
        },
        "launch": {
            "source": ["aws.autoscaling"],
            "detail-type": ["EC2 Instance Launch Successful", "EC2 Instance Launch Unsuccessful"],
            "detail": by_name,
        },
        "terminate": {
            "source": ["aws.autoscaling"],
            "detail-type": ["EC2 Instance Terminate Successful", "EC2 Instance Terminate Unsuccessful"],
            "detail": by_name,
        },
    }
    patterns["health"] = {
        "source": ["aws.health"],
        "detail-type": ["AWS Health Event"],
        "detail": {
            "service": ["EC2"],
            "eventTypeCategory": ["scheduledChange"],
            "eventTypeCode": [{"prefix": prefix} for prefix in _SCHEDULED_CHANGES],
        },
    }
    if has_fleets:
        patterns["fleet"] = {"source": ["aws.ec2spotfleet"], "detail-type": list(_FLEET_EVENTS)}
    return patterns
