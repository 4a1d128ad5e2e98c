"""What a service's queue asks of IAM, whatever its kind, and what the function may do that watches it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
class QueueAccess:
    """What a service's queue asks of IAM.

    ``service`` is AWS's that decrypts for its workers. ``secret`` names the secret with its URL, if it has
    one: workers and observers may read that. Beside it workers have ``work``, who only sees how many wait has
    ``count``, the queue watcher ``watch``, and a preview of the stack ``preview``.
    """

    service: str
    secret: pulumi.Input[str] | None = None
    work: Sequence[Statement] = ()
    count: Sequence[Statement] = ()
    watch: Sequence[Statement] = ()
    preview: Sequence[Statement] = ()


def secrets_of(queues: Iterable[QueueAccess]) -> list[pulumi.Input[str]]:
    """Return the names of the queues' secrets."""
    return [queue.secret for queue in queues if queue.secret is not None]


def merged(statements: Iterable[Statement]) -> list[Statement]:
    """Return one statement of each name, on the resources of all that have it."""
    found: dict[str, Statement] = {}
    for one in statements:
        before = found.setdefault(one.sid, one)
        if before is not one and one.resources is not ANY_RESOURCE:
            found[one.sid] = replace(before, resources=[*before.resources, *one.resources])
    return [*found.values()]


def queue_watcher(
    scope: Scope, function: str, registry_arn: pulumi.Input[str], queues: Sequence[QueueAccess]
) -> list[Statement]:
    """What the queue watcher may do: see ``queues``, keep its rows.

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
    if secrets := secrets_of(queues):
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
    allowed += merged(statement for queue in queues for statement in queue.watch)
    return [*allowed, *with_key(scope, ["dynamodb", "lambda", "secretsmanager"])]
