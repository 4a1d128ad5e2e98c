"""Every permission that the stack grants, and nothing else.

``ANY_RESOURCE`` marks actions for which the service authorisation reference offers no narrower resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi

from infra.scope import Scope
from lambdas.core import names

ANY_RESOURCE: Final = ("*",)
"""For actions without resource-level permissions."""


@dataclass(frozen=True)
class Statement:
    """One statement of an IAM policy. ``principal`` only in resource policies."""

    sid: str
    actions: Sequence[str]
    resources: Sequence[pulumi.Input[str]] = ()
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    principal: Mapping[str, str] | str | None = None
    effect: str = "Allow"

    def rendered(self) -> dict[str, Any]:
        """Return the statement as IAM's JSON wants it; outputs stay outputs."""
        parts: dict[str, Any] = {"Sid": self.sid, "Effect": self.effect, "Action": list(self.actions)}
        if self.principal is not None:
            parts["Principal"] = self.principal
        if self.resources:
            parts["Resource"] = list(self.resources)
        if self.conditions:
            parts["Condition"] = self.conditions
        return parts


def document(statements: Sequence[Statement]) -> pulumi.Output[str]:
    """Return a policy document as JSON."""
    return pulumi.Output.json_dumps(
        {"Version": "2012-10-17", "Statement": [s.rendered() for s in statements]}
    )


def assumed_by(service: str) -> list[Statement]:
    """Trust one AWS service."""
    return [Statement("Assume", ["sts:AssumeRole"], principal={"Service": service})]


def instance(scope: Scope, *, group: str, registry_arn: pulumi.Input[str]) -> list[Statement]:
    """What an instance of ``group`` may do: report its workers, end its launch hook, offer sessions."""
    return [
        Statement(
            "ReportWorkers",
            ["dynamodb:UpdateItem"],
            [registry_arn],
            # ForAllValues holds for no key at all, too: Null refuses that.
            {
                "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [group]},
                "Null": {"dynamodb:LeadingKeys": "false"},
            },
        ),
        Statement(
            "CompleteLaunchHook",
            ["autoscaling:CompleteLifecycleAction"],
            [_own_groups(scope)],
            _tagged({names.TAG_STACK: scope.stack, names.TAG_GROUP: group}),
        ),
        Statement(
            # The least that it needs (Systems Manager guide, "Create a custom IAM role for Session Manager").
            "SessionManager",
            [
                "ssm:UpdateInstanceInformation",
                "ssmmessages:CreateControlChannel",
                "ssmmessages:CreateDataChannel",
                "ssmmessages:OpenControlChannel",
                "ssmmessages:OpenDataChannel",
            ],
            ANY_RESOURCE,
        ),
    ]


def controller(
    scope: Scope,
    *,
    queue_arn: pulumi.Input[str],
    memory_arn: pulumi.Input[str],
    registry_arn: pulumi.Input[str],
    log_group_arn: pulumi.Input[str],
) -> list[Statement]:
    """What the controller may do: hear, remember, look, and move the capacity of this stack's groups."""
    parameters = names.parameter_root(scope.stack)
    return [
        Statement(
            "WriteLog",
            ["logs:CreateLogStream", "logs:PutLogEvents"],
            [pulumi.Output.concat(log_group_arn, ":*")],
        ),
        Statement(
            "ReceiveWakeUps",
            ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"],
            [queue_arn],
        ),
        Statement(
            "ReadGroups",
            ["ssm:GetParametersByPath"],
            [scope.arn("ssm", f"parameter{parameters}"), scope.arn("ssm", f"parameter{parameters}/*")],
        ),
        Statement("Remember", ["dynamodb:GetItem", "dynamodb:PutItem"], [memory_arn]),
        Statement("ReadWorkers", ["dynamodb:Query"], [registry_arn]),
        Statement(
            "Observe",
            [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeScalingActivities",
                "ec2:DescribeInstances",
                "ec2:DescribeSpotInstanceRequests",
            ],
            ANY_RESOURCE,
        ),
        Statement(
            "MoveCapacity",
            ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            [_own_groups(scope)],
            _tagged({names.TAG_STACK: scope.stack}),
        ),
    ]


def queue(queue_arn: pulumi.Input[str], rule_arns: Sequence[pulumi.Input[str]]) -> list[Statement]:
    """A queue's own policy: these EventBridge rules may send, and nobody may without TLS."""
    return [
        Statement(
            "EventBridgeSends",
            ["sqs:SendMessage"],
            [queue_arn],
            {"ArnEquals": {"aws:SourceArn": list(rule_arns)}},
            principal={"Service": "events.amazonaws.com"},
        ),
        Statement(
            "OnlyOverTls",
            ["sqs:SendMessage", "sqs:ReceiveMessage"],
            [queue_arn],
            {"Bool": {"aws:SecureTransport": "false"}},
            principal="*",
            effect="Deny",
        ),
    ]


def _own_groups(scope: Scope) -> pulumi.Output[str]:
    # The middle part is a UUID that AWS draws; the name carries the stack's prefix.
    return scope.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{scope.prefix}*")


def _tagged(tags: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {"StringEquals": {f"aws:ResourceTag/{key}": value for key, value in tags.items()}}
