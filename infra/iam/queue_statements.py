"""What workers and callers of a queue may do, and the function that watches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi

from contracts import names
from infra.iam.statement import ANY_RESOURCE, Statement, keys_like, with_key
from infra.scope import Scope

_INTERFACES: Final = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)
"""What Lambda does with the role of a function in a VPC (Lambda guide, "Giving Lambda functions access to
resources in an Amazon VPC", required permissions)."""


@dataclass(frozen=True)
class SqsArns:
    """A service's queue, that of its dead letters, and the pattern of its clients' queues of answers."""

    queue: pulumi.Input[str]
    dead: pulumi.Input[str]
    answers: pulumi.Input[str]


def sqs_worker(arns: SqsArns) -> list[Statement]:
    """What a worker of a queue in SQS may do: take requests, hold them, answer, bury."""
    return [
        Statement(
            "WorkOnQueue",
            [
                "sqs:ChangeMessageVisibility",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:GetQueueUrl",
                "sqs:ReceiveMessage",
            ],
            [arns.queue],
        ),
        Statement("BuryRequests", ["sqs:GetQueueUrl", "sqs:SendMessage"], [arns.dead]),
        Statement("SendAnswers", ["sqs:SendMessage"], [arns.answers]),
    ]


def sqs_caller(scope: Scope, arns: SqsArns) -> list[Statement]:
    """What a client of such a queue may do: send requests, have a queue of answers, tidy up after others."""
    return [
        Statement("SendRequests", ["sqs:GetQueueUrl", "sqs:SendMessage"], [arns.queue]),
        Statement(
            "ReadAnswers",
            [
                "sqs:CreateQueue",
                "sqs:DeleteMessage",
                "sqs:DeleteQueue",
                "sqs:ListQueueTags",
                "sqs:ReceiveMessage",
                "sqs:TagQueue",
            ],
            [arns.answers],
        ),
        Statement("FindAnswers", ["sqs:ListQueues"], ANY_RESOURCE),
        *with_key(scope, ["sqs"]),
    ]


def only_over_tls(queue_arn: pulumi.Input[str]) -> list[Statement]:
    """Return a queue's own policy: nobody may do anything without TLS. Who may stands with the roles."""
    return [
        Statement(
            "OnlyOverTls",
            ["sqs:*"],
            [queue_arn],
            {"Bool": {"aws:SecureTransport": "false"}},
            principal="*",
            effect="Deny",
        )
    ]


def queue_watcher(
    scope: Scope,
    function: str,
    registry_arn: pulumi.Input[str],
    secrets: Sequence[pulumi.Input[str]],
    queues: Sequence[pulumi.Input[str]],
) -> list[Statement]:
    """What the queue watcher may do: read ``secrets`` (names), see ``queues`` of SQS (ARNs), keep its rows.

    ``function`` is its name: its own code may not do what Lambda does with its role for the network.
    """
    allowed = [
        Statement(
            "KeepQueues",
            ["dynamodb:GetItem", "dynamodb:PutItem"],
            [registry_arn],
            keys_like(names.queue_partition("*")),
        ),
        Statement("BeInTheNetwork", _INTERFACES, ANY_RESOURCE),
        Statement(
            "OnlyLambdaInTheNetwork",
            _INTERFACES,
            ANY_RESOURCE,
            {"ArnEquals": {"lambda:SourceFunctionArn": scope.arn("lambda", f"function:{function}")}},
            effect="Deny",
        ),
    ]
    if secrets:
        allowed.append(
            Statement(
                "ReadQueueSecrets",
                ["secretsmanager:GetSecretValue"],
                # AWS adds six letters of its own to the name.
                [
                    pulumi.Output.concat(scope.arn("secretsmanager", "secret:"), one, "-??????")
                    for one in secrets
                ],
            )
        )
    if queues:
        allowed.append(Statement("SeeQueues", ["sqs:GetQueueAttributes", "sqs:GetQueueUrl"], queues))
        allowed.append(Statement("SeeTheirMetrics", ["cloudwatch:GetMetricData"], ANY_RESOURCE))
    return [*allowed, *with_key(scope, ["dynamodb", "lambda", "secretsmanager"])]
