"""Permissions of the scaler."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from contracts import names
from infra.iam.statement import ANY_RESOURCE, Statement, keys_like, read_groups, use_key
from infra.scope import Scope


def scaler(
    scope: Scope,
    services: Sequence[str],
    *,
    memory_arn: pulumi.Input[str],
    registry_arn: pulumi.Input[str],
    reads_metrics: bool,
) -> list[Statement]:
    """Return the permissions, in addition to writing its log; it writes the targets of ``services``.

    ``reads_metrics``: a service scales by a request log.
    """
    targets = [names.group_parameter(scope.stack, service, names.PARAMETER_TARGET) for service in services]
    return [
        read_groups(scope),
        Statement(
            "WriteTargets",
            ["ssm:PutParameter"],
            [scope.arn("ssm", f"parameter{target}") for target in targets],
        ),
        # Also the controller's memory: boot times, terminated instances.
        Statement("ReadMemory", ["dynamodb:BatchGetItem", "dynamodb:GetItem"], [memory_arn]),
        Statement(
            "RememberScaling", ["dynamodb:PutItem"], [memory_arn], keys_like(names.scaling_memory("*"))
        ),
        Statement("ReadWorkers", ["dynamodb:BatchGetItem"], [registry_arn]),
        Statement("SeeInstances", ["ec2:DescribeInstances"], ANY_RESOURCE),
        *([Statement("ReadRequests", ["cloudwatch:GetMetricData"], ANY_RESOURCE)] if reads_metrics else []),
        *use_key(scope, ["dynamodb", "lambda"]),
    ]
