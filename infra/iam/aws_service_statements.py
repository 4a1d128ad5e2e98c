"""Statements of roles that AWS services assume."""

from __future__ import annotations

import pulumi

from infra.iam.statement import Statement, use_key
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
    return [Statement("HandOutOneRole", ["iam:PassRole"], effect="Deny", not_resources=[instance_role_arn])]


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


def assumed_by_schedules(scope: Scope) -> list[Statement]:
    """Trust EventBridge Scheduler, on behalf of schedules of this account and region only.

    Source: EventBridge Scheduler user guide, "Confused deputy prevention": the ARN is that of the group.
    """
    group = scope.arn("scheduler", "schedule-group/default")
    return [
        Statement(
            "Assume",
            ["sts:AssumeRole"],
            principal={"Service": "scheduler.amazonaws.com"},
            conditions={"StringEquals": {"aws:SourceAccount": scope.account_id, "aws:SourceArn": group}},
        )
    ]


def schedule(scope: Scope, parameter: str, dead_letters_arn: pulumi.Input[str]) -> list[Statement]:
    """Allow a schedule to write one parameter, and to keep what it could not write in a queue."""
    return [
        Statement("RequestRun", ["ssm:PutParameter"], [scope.arn("ssm", f"parameter{parameter}")]),
        Statement("KeepFailures", ["sqs:SendMessage"], [dead_letters_arn]),
        *use_key(scope, ["sqs"]),
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
