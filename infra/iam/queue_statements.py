"""What the queue watcher may do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pulumi

from infra.iam.statements import ANY_RESOURCE, Statement, with_key
from infra.scope import Scope
from lambdas.core import names

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


def queue_watcher(
    scope: Scope, function: str, registry_arn: pulumi.Input[str], secrets: Sequence[pulumi.Input[str]]
) -> list[Statement]:
    """What the queue watcher may do: read ``secrets`` (names), keep its rows, be in the network.

    ``function`` is its name: its own code may not do what Lambda does with its role for the network.
    """
    allowed = [
        Statement(
            "KeepQueues",
            ["dynamodb:GetItem", "dynamodb:PutItem"],
            [registry_arn],
            {
                "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [names.queue_partition("*")]},
                # A request without a key would fit all values of none.
                "Null": {"dynamodb:LeadingKeys": "false"},
            },
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
    return [*allowed, *with_key(scope, ["dynamodb", "lambda", "secretsmanager"])]
