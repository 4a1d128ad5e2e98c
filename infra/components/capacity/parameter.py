"""A group's parameter in Parameter Store."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.scope import Scope


def declare(
    scope: Scope,
    parent: pulumi.Resource | None,
    group: str,
    leaf: str,
    description: str,
    value: pulumi.Input[str],
    *,
    is_initial_value: bool = False,
) -> aws.ssm.Parameter:
    """Declare a parameter. With ``is_initial_value`` Pulumi does not reset it once it has changed."""
    name = scope.name(group, leaf)
    return aws.ssm.Parameter(
        name,
        name=names.group_parameter(scope.stack, group, leaf),
        type=aws.ssm.ParameterType.STRING,
        description=f"{description} ({group})",
        # Not a secret: the provider would hide `value` in previews.
        insecure_value=value,
        tags=scope.tags(name, group=group),
        opts=pulumi.ResourceOptions(
            parent=parent, ignore_changes=["insecureValue"] if is_initial_value else None
        ),
    )
