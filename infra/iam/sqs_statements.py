"""What workers and callers of a queue in SQS may do, and who only sees how many wait."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from infra.iam.queue_statements import QueueAccess
from infra.iam.statement import ANY_RESOURCE, Statement, with_key
from infra.scope import Scope


@dataclass(frozen=True)
class SqsArns:
    """A service's queue, that of its dead letters, and the pattern of its clients' queues of answers."""

    queue: pulumi.Input[str]
    dead: pulumi.Input[str]
    answers: pulumi.Input[str]


def access(arns: SqsArns) -> QueueAccess:
    """Return what a queue's workers and its observers need."""
    see = Statement("SeeQueues", ["sqs:GetQueueAttributes", "sqs:GetQueueUrl"], [arns.queue])
    metrics = Statement("SeeTheirMetrics", ["cloudwatch:GetMetricData"], ANY_RESOURCE)
    return QueueAccess("sqs", work=worker(arns), count=[see], watch=[see, metrics])


def worker(arns: SqsArns) -> list[Statement]:
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


def caller(scope: Scope, arns: SqsArns) -> list[Statement]:
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
