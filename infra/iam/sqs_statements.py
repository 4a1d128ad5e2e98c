"""Permissions of workers, callers and readers of an SQS queue."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from infra.iam.queue_statements import QueueAccess
from infra.iam.statement import ANY_RESOURCE, Statement, use_key
from infra.scope import Scope


@dataclass(frozen=True)
class SqsArns:
    """A service's queue, its dead-letter queue, and the pattern of its clients' reply queues."""

    queue: pulumi.Input[str]
    dead_letters: pulumi.Input[str]
    reply_queues: pulumi.Input[str]


def access(arns: SqsArns) -> QueueAccess:
    """Return the permissions by role."""
    read = Statement("SeeQueues", ["sqs:GetQueueAttributes", "sqs:GetQueueUrl"], [arns.queue])
    metrics = Statement("SeeTheirMetrics", ["cloudwatch:GetMetricData"], ANY_RESOURCE)
    return QueueAccess("sqs", work=worker(arns), watch=[read, metrics])


def worker(arns: SqsArns) -> list[Statement]:
    """Return the permissions of a worker: consume requests, reply, dead-letter."""
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
        Statement("BuryRequests", ["sqs:GetQueueUrl", "sqs:SendMessage"], [arns.dead_letters]),
        Statement("SendAnswers", ["sqs:SendMessage"], [arns.reply_queues]),
    ]


def caller(scope: Scope, arns: SqsArns) -> list[Statement]:
    """Return the permissions of a client: send requests, use a reply queue, delete abandoned ones."""
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
            [arns.reply_queues],
        ),
        Statement("FindAnswers", ["sqs:ListQueues"], ANY_RESOURCE),
        *use_key(scope, ["sqs"]),
    ]


def only_over_tls(queue_arn: pulumi.Input[str]) -> list[Statement]:
    """Return a queue's policy: requests without TLS are denied. Roles grant access."""
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
