"""Permissions for a service's queue of any kind, and those of the queue watcher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pulumi

from contracts import names
from contracts.registry import item as registry_item
from infra.iam.statement import ANY_RESOURCE, Statement, keys_like, use_key
from infra.scope import Scope

_INTERFACES: Final = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)
"""Lambda's calls with the role of a function in a VPC. Source: Lambda guide, "Giving Lambda functions access
to resources in an Amazon VPC", required permissions."""


@dataclass(frozen=True)
class QueueAccess:
    """Permissions for a service's queue, by role.

    Attributes:
        service: The AWS service that uses the customer's key for the workers.
        secret: Name of the secret with the workers' URL of the queue, if any.
        count_secret: Name of the secret with the URL of what reads its length, if it is another one.
        work: Permissions of workers.
        watch: Permissions of the queue watcher.
        preview: Permissions of previews of the stack.
    """

    service: str
    secret: pulumi.Input[str] | None = None
    count_secret: pulumi.Input[str] | None = None
    work: Sequence[Statement] = ()
    watch: Sequence[Statement] = ()
    preview: Sequence[Statement] = ()


def secrets_to_count(queues: Iterable[QueueAccess]) -> list[pulumi.Input[str]]:
    """Return the names of the secrets for reading the queues' lengths."""
    secrets = (queue.secret if queue.count_secret is None else queue.count_secret for queue in queues)
    # Queues on one broker share one.
    return [*dict.fromkeys(secret for secret in secrets if secret is not None)]


def secret_arns(scope: Scope, secrets: Iterable[pulumi.Input[str]]) -> list[pulumi.Input[str]]:
    """Return patterns of secrets' ARNs: AWS appends six characters to the name."""
    return [pulumi.Output.concat(scope.arn("secretsmanager", "secret:"), name, "-??????") for name in secrets]


def in_the_network(scope: Scope, function: str) -> list[Statement]:
    """Return the permissions of a function in a VPC: for Lambda, and denied to the function's own code."""
    return [
        Statement("BeInTheNetwork", _INTERFACES, ANY_RESOURCE),
        Statement(
            "OnlyLambdaInTheNetwork",
            _INTERFACES,
            ANY_RESOURCE,
            {"ArnEquals": {"lambda:SourceFunctionArn": scope.arn("lambda", f"function:{function}")}},
            effect="Deny",
        ),
    ]


def merge(statements: Iterable[Statement]) -> list[Statement]:
    """Merge statements with the same ``Sid`` into one with all of their resources."""
    by_sid: dict[str, Statement] = {}
    for statement in statements:
        before = by_sid.setdefault(statement.sid, statement)
        if before is not statement and statement.resources is not ANY_RESOURCE:
            by_sid[statement.sid] = replace(before, resources=[*before.resources, *statement.resources])
    return [*by_sid.values()]


def queue_watcher(
    scope: Scope,
    function: str,
    registry_arn: pulumi.Input[str],
    queues: Sequence[QueueAccess],
    *,
    is_in_network: bool,
    reads_proxies: bool,
) -> list[Statement]:
    """Return the permissions of ``function``: read ``queues`` and write their registry items.

    ``reads_proxies``: a service has proxies, whose items it reads, and those of the workers behind them.
    """
    allowed = [
        Statement(
            "KeepQueues",
            ["dynamodb:GetItem", "dynamodb:PutItem"],
            [registry_arn],
            keys_like(names.queue_partition("*")),
        ),
        *(in_the_network(scope, function) if is_in_network else ()),
    ]
    if reads_proxies:
        instances = registry_item.partition("*", "*")
        allowed += [
            Statement("ReadProxies", ["dynamodb:BatchGetItem"], [registry_arn], keys_like(instances)),
            Statement("FindProxies", ["ec2:DescribeInstances"], ANY_RESOURCE),
        ]
    if secrets := secrets_to_count(queues):
        arns = secret_arns(scope, secrets)
        allowed.append(Statement("ReadQueueSecrets", ["secretsmanager:GetSecretValue"], arns))
    allowed += merge(statement for queue in queues for statement in queue.watch)
    return [*allowed, *use_key(scope, ["dynamodb", "lambda", "secretsmanager"])]
