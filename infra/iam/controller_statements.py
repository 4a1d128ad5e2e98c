"""What the controller may do."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

from contracts import names
from infra.iam.statement import ANY_RESOURCE, Statement, keys_unlike, read_groups, with_key, write_log
from infra.scope import Scope


def controller(
    scope: Scope,
    *,
    queue_arn: pulumi.Input[str],
    memory_arn: pulumi.Input[str],
    registry_arn: pulumi.Input[str],
    log_group_arn: pulumi.Input[str],
    fleets: bool,
    blocks: bool,
    zones: bool,
) -> list[Statement]:
    """What the controller may do: hear, remember, look, and move the capacity of this stack's groups.

    ``fleets``: whether some of the groups are Spot Fleets; ``blocks``: whether some have a Capacity Block;
    ``zones``: whether some are asked for on-demand in one zone.
    """
    allowed = [
        write_log(log_group_arn),
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
        Statement("Remember", ["dynamodb:GetItem"], [memory_arn]),
        # Beside its items lie those of the health checker and the scaler, `<group>@…`.
        Statement("KeepMemory", ["dynamodb:PutItem"], [memory_arn], keys_unlike("*@*")),
        Statement("ReadWorkers", ["dynamodb:Query"], [registry_arn]),
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
    allowed += with_key(scope, ["dynamodb", "lambda", "sqs"])
    if blocks:
        allowed.append(Statement("ReadBlocks", ["ec2:DescribeCapacityReservations"], ANY_RESOURCE))
    if zones:
        allowed += _launch_by_zone(scope)
    return [*allowed, *_move_fleets(scope)] if fleets else allowed


def _launch_by_zone(scope: Scope) -> list[Statement]:
    """What LaunchInstances asks of its caller; of launch templates only the stack's own.

    Source: Auto Scaling guide, "Launching instances with synchronous provisioning", prerequisites. To launch
    by itself the controller would need ``ec2:RunInstances`` and ``iam:PassRole``, too, which it has not.
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
            # What has no name or tag of ours; a template, which has, is part of every such call.
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
            _tagged({names.TAG_STACK: scope.stack, names.TAG_SIDE: "primary"}),
        ),
    ]


def _own_groups(scope: Scope) -> pulumi.Output[str]:
    # The middle part is a UUID that AWS draws; the name carries the stack's prefix.
    return scope.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{scope.prefix}*")


def _tagged(tags: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {"StringEquals": {f"aws:ResourceTag/{key}": value for key, value in tags.items()}}
