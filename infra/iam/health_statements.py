"""Permissions of the health checker. It cannot terminate instances."""

from __future__ import annotations

import pulumi

from contracts import names
from infra.iam.statement import ANY_RESOURCE, Statement, keys_like, read_groups, use_key
from infra.scope import Scope


def health_checker(
    scope: Scope,
    *,
    memory_arn: pulumi.Input[str],
    registry_arn: pulumi.Input[str],
    topic_arn: pulumi.Input[str],
) -> list[Statement]:
    """Return the permissions, in addition to writing its log."""
    return [
        read_groups(scope),
        Statement(
            "WriteWishes",
            ["ssm:PutParameter"],
            [
                scope.arn("ssm", f"parameter{names.group_parameter(scope.stack, '*', leaf)}")
                for leaf in (names.PARAMETER_REPLACEMENT_REQUESTS, names.PARAMETER_ROLLOUT_REQUEST)
            ],
        ),
        # Also the controller's memory: terminated instances, boot times.
        Statement("ReadMemory", ["dynamodb:BatchGetItem", "dynamodb:GetItem"], [memory_arn]),
        Statement("RememberHealth", ["dynamodb:PutItem"], [memory_arn], keys_like(names.health_memory("*"))),
        Statement("ReadWorkers", ["dynamodb:BatchGetItem"], [registry_arn]),
        Statement(
            "SayWhatToStart", ["dynamodb:PutItem"], [registry_arn], keys_like(names.release_partition("*"))
        ),
        Statement(
            "AskForRestarts",
            ["dynamodb:UpdateItem"],
            [registry_arn],
            {
                "ForAllValues:StringEquals": {
                    "dynamodb:Attributes": [names.REGISTRY_KEY, names.REGISTRY_SORT_KEY, "restart"]
                },
                "Null": {"dynamodb:Attributes": "false"},
            },
        ),
        Statement(
            "Observe", ["autoscaling:DescribeAutoScalingInstances", "ec2:DescribeInstances"], ANY_RESOURCE
        ),
        Statement("Tell", ["sns:Publish"], [topic_arn]),
        *use_key(scope, ["dynamodb", "lambda", "sns"]),
    ]
