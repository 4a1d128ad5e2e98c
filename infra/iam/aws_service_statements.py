"""Statements of roles that AWS services assume."""

from __future__ import annotations

import pulumi

from infra.iam.statement import Statement
from infra.scope import Scope


def assumed_by(service: str) -> list[Statement]:
    """Trust an AWS service whose name is the same in every partition."""
    return [Statement("Assume", ["sts:AssumeRole"], principal={"Service": service})]


def assumed_by_fleets(scope: Scope) -> list[Statement]:
    """Trust the Spot Fleet service, on behalf of fleets of this account and region only."""
    return [
        Statement(
            "Assume",
            ["sts:AssumeRole"],
            principal={"Service": "spotfleet.amazonaws.com"},
            conditions={
                "StringEquals": {"aws:SourceAccount": scope.account_id},
                "ArnLike": {"aws:SourceArn": scope.arn("ec2", "spot-fleet-request/sfr-*")},
            },
        )
    ]


def fleet(instance_role_arn: pulumi.Input[str]) -> list[Statement]:
    """Restrict AWS's tagging policy for a Spot Fleet, which allows passing any role to instances."""
    return [
        Statement(
            "HandOutOneRole",
            ["iam:PassRole"],
            effect="Deny",
            not_resources=[instance_role_arn],
        )
    ]


def assumed_by_flow_logs(scope: Scope) -> list[Statement]:
    """Trust the flow logs service, on behalf of flow logs of this account and region only."""
    return [
        Statement(
            "Assume",
            ["sts:AssumeRole"],
            principal={"Service": "vpc-flow-logs.amazonaws.com"},
            conditions={
                "StringEquals": {"aws:SourceAccount": scope.account_id},
                "ArnLike": {"aws:SourceArn": scope.arn("ec2", "vpc-flow-log/*")},
            },
        )
    ]


def flow_logs(log_group_arn: pulumi.Input[str]) -> list[Statement]:
    """Allow the flow logs service to write to one log group."""
    return [
        Statement(
            "WriteLog",
            ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            [log_group_arn, pulumi.Output.concat(log_group_arn, ":*")],
        )
    ]
