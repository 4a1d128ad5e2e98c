"""Permissions of AWS FIS in an interruption drill of one group."""

from __future__ import annotations

from contracts import names
from infra.iam.statement import ANY_RESOURCE, Statement
from infra.scope import Scope


def assumed_by_experiments(scope: Scope) -> list[Statement]:
    """Trust FIS, on behalf of experiments of this account and region only.

    Source: FIS user guide, "IAM roles for AWS FIS experiments" (confused deputy).
    """
    return [
        Statement(
            "Assume",
            ["sts:AssumeRole"],
            principal={"Service": "fis.amazonaws.com"},
            conditions={
                "StringEquals": {"aws:SourceAccount": scope.account_id},
                "ArnLike": {"aws:SourceArn": scope.arn("fis", "experiment/*")},
            },
        )
    ]


def drill(scope: Scope, group: str) -> list[Statement]:
    """Return the permissions: find and interrupt the group's instances, no others."""
    tags = {names.TAG_STACK: scope.stack, names.TAG_GROUP: group}
    return [
        Statement("FindInstances", ["ec2:DescribeInstances"], ANY_RESOURCE),
        Statement(
            "InterruptInstances",
            ["ec2:SendSpotInstanceInterruptions"],
            [scope.arn("ec2", "instance/*")],
            {"StringEquals": {f"aws:ResourceTag/{key}": value for key, value in tags.items()}},
        ),
    ]
