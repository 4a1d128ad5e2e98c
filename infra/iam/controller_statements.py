"""Permissions of the controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi

from contracts import names
from infra.iam.statement import ANY_RESOURCE, Statement, keys_unlike, read_groups, use_key
from infra.scope import Scope


def controller(
    scope: Scope,
    *,
    queue_arn: pulumi.Input[str],
    memory_arn: pulumi.Input[str],
    registry_arn: pulumi.Input[str],
    has_fleets: bool,
    has_capacity_blocks: bool,
    launches_by_zone: bool,
    scheduled_jobs: Sequence[str],
) -> list[Statement]:
    """Return the permissions: read events and groups, keep state, change this stack's capacity.

    Writing its log is not among them.

    ``launches_by_zone``: some groups launch instances in a given zone. ``scheduled_jobs`` have a
    schedule: the controller writes their runs.
    """
    statements = [
        Statement(
            "ReceiveWakeUps",
            [
                "sqs:ReceiveMessage",
                "sqs:DeleteMessage",
                "sqs:ChangeMessageVisibility",
                "sqs:GetQueueAttributes",
            ],
            [queue_arn],
        ),
        Statement("WakeItself", ["sqs:SendMessage"], [queue_arn]),
        read_groups(scope),
        Statement("Remember", ["dynamodb:BatchGetItem", "dynamodb:GetItem"], [memory_arn]),
        # Items of the health checker and the scaler have keys `<group>@…`.
        Statement("KeepMemory", ["dynamodb:PutItem"], [memory_arn], keys_unlike("*@*")),
        Statement("ReadWorkers", ["dynamodb:BatchGetItem"], [registry_arn]),
        Statement(
            "Observe",
            [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeScalingActivities",
                "ec2:DescribeInstances",
                "ec2:DescribeSpotInstanceRequests",
                "ec2:DescribeSpotPriceHistory",
            ],
            ANY_RESOURCE,
        ),
        Statement(
            "MoveCapacity",
            [
                "autoscaling:SetDesiredCapacity",
                "autoscaling:SetInstanceProtection",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
            ],
            [_own_groups(scope)],
            _tagged({names.TAG_STACK: scope.stack}),
        ),
    ]
    statements += use_key(scope, ["dynamodb", "lambda", "sqs"])
    if scheduled_jobs:
        runs = [names.group_parameter(scope.stack, job, names.PARAMETER_RUN) for job in scheduled_jobs]
        resources = [scope.arn("ssm", f"parameter{run}") for run in runs]
        statements.append(Statement("StartRuns", ["ssm:PutParameter"], resources))
    if has_capacity_blocks:
        statements.append(Statement("ReadBlocks", ["ec2:DescribeCapacityReservations"], ANY_RESOURCE))
    if launches_by_zone:
        statements += _launch_by_zone(scope)
    return [*statements, *_move_fleets(scope)] if has_fleets else statements


def _launch_by_zone(scope: Scope) -> list[Statement]:
    """Return the permissions for LaunchInstances, with the stack's own launch templates only.

    ``ec2:CreateFleet`` is bound to these templates, not to Auto Scaling or to a size: a compromised
    controller could request a fleet of its own, which ``AWSServiceRoleForEC2Fleet`` launches.
    ``aws:CalledVia``, or ``ec2:IsLaunchTemplateResource`` for images, would bound it if Auto Scaling's call
    has them; only a call on AWS can tell (``research/smoke/controlling.py`` tries the second).
    Source: Auto Scaling guide, "Launching instances with synchronous provisioning", prerequisites.
    """
    return [
        Statement(
            "LaunchByZone",
            ["autoscaling:LaunchInstances"],
            [_own_groups(scope)],
            _tagged({names.TAG_STACK: scope.stack}),
        ),
        Statement(
            "LaunchFromOwnTemplates",
            ["ec2:CreateFleet"],
            [scope.arn("ec2", "launch-template/*")],
            _tagged({names.TAG_STACK: scope.stack}),
        ),
        Statement(
            "MakeFleets",
            ["ec2:CreateFleet"],
            [scope.arn("ec2", f"{kind}/*") for kind in ("fleet", "instance", "subnet", "volume")]
            + [pulumi.Output.concat("arn:", scope.partition, ":ec2:", scope.region, "::image/*")],
            # These have no name or tag of the stack; the launch template of each call has.
            {"StringEquals": {"ec2:Region": scope.region}},
        ),
        Statement("ReadTemplates", ["ec2:DescribeLaunchTemplateVersions"], ANY_RESOURCE),
    ]


def _move_fleets(scope: Scope) -> list[Statement]:
    return [
        Statement(
            "ObserveFleets",
            [
                "ec2:DescribeSpotFleetInstances",
                "ec2:DescribeSpotFleetRequestHistory",
                "ec2:DescribeSpotFleetRequests",
            ],
            ANY_RESOURCE,
        ),
        Statement(
            "MoveFleets",
            ["ec2:ModifySpotFleetRequest"],
            [scope.arn("ec2", "spot-fleet-request/*")],
            _tagged({names.TAG_STACK: scope.stack}),
        ),
        Statement(
            "EndFleetInstances",
            ["ec2:TerminateInstances"],
            [scope.arn("ec2", "instance/*")],
            _tagged({names.TAG_STACK: scope.stack, names.TAG_GROUP_ROLE: "primary"}),
        ),
    ]


def _own_groups(scope: Scope) -> pulumi.Output[str]:
    # The middle part is a UUID; the name has the stack's prefix.
    return scope.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{scope.prefix}*")


def _tagged(tags: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {"StringEquals": {f"aws:ResourceTag/{key}": value for key, value in tags.items()}}
