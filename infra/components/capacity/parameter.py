"""A parameter of a group, as it stands below the group's name in Parameter Store."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.scope import Scope


def declare(
    scope: Scope,
    parent: pulumi.Resource,
    group: str,
    leaf: str,
    description: str,
    value: pulumi.Input[str],
    *,
    owned_by_others: bool = False,
) -> aws.ssm.Parameter:
    """Declare a parameter; what others write into one of theirs stays through every `up`."""
    name = scope.name(group, leaf)
    return aws.ssm.Parameter(
        name,
        name=names.group_parameter(scope.stack, group, leaf),
        type=aws.ssm.ParameterType.STRING,
        description=f"{description} ({group})",
        # Not a secret: as `value` the provider would hide it in every preview.
        insecure_value=value,
        tags=scope.tags(name, group=group),
        opts=pulumi.ResourceOptions(
            parent=parent, ignore_changes=["insecureValue"] if owned_by_others else None
        ),
    )
