"""Roles of instances and functions. Their permissions are in ``infra.iam``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.iam import aws_service_statements, instance_statements
from infra.iam.statement import Statement, document
from infra.scope import Scope


@dataclass(frozen=True)
class InstanceIdentityArgs:
    """``group`` is the capacity group of the instances; ``part`` as in `TelemetryArgs`."""

    scope: Scope
    group: str
    access: instance_statements.InstanceAccess
    part: str = "instance"


class InstanceIdentity(pulumi.ComponentResource):
    """A role for the instances of a group, with its policy and instance profile."""

    profile_arn: pulumi.Output[str]
    role_arn: pulumi.Output[str]

    def __init__(
        self, name: str, args: InstanceIdentityArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the identity."""
        super().__init__("gpu-spot:infra:InstanceIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role_name = args.scope.name(args.group, args.part)
        tags = args.scope.tags(role_name, group=args.group)
        trust = aws_service_statements.assumed_by("ec2.amazonaws.com")
        role = declare_role(args.scope, role_name, trust, child, args.group)
        aws.iam.RolePolicy(
            role_name,
            role=role.name,
            policy=document(instance_statements.instance(args.scope, group=args.group, access=args.access)),
            opts=child,
        )
        attach(role, role_name, args.access.policy_arns, child)
        self.role_arn = role.arn
        self.profile_arn = aws.iam.InstanceProfile(role_name, role=role.name, tags=tags, opts=child).arn
        self.register_outputs({"profileArn": self.profile_arn, "roleArn": self.role_arn})


def declare_role(
    scope: Scope,
    name: str,
    trust: Sequence[Statement],
    opts: pulumi.ResourceOptions,
    group: str | None = None,
) -> aws.iam.Role:
    """Declare a role that ``trust`` may assume; ``group`` is in its tags."""
    return aws.iam.Role(
        name,
        assume_role_policy=document(trust),
        permissions_boundary=scope.permissions_boundary,
        tags=scope.tags(name, group=group),
        opts=opts,
    )


def attach(role: aws.iam.Role, name: str, policy_arns: Sequence[str], opts: pulumi.ResourceOptions) -> None:
    """Attach managed policies of the stack file to a role."""
    for arn in policy_arns:
        aws.iam.RolePolicyAttachment(named_for(name, arn), role=role.name, policy_arn=arn, opts=opts)


def named_for(name: str, arn: str) -> str:
    """Return a logical name with the account and path of an IAM ARN, not with its position in a list.

    By position an ARN may come to another resource, which is created before the old one is deleted: AWS then
    refuses a second access entry, and detaches a policy that was just attached.
    """
    return f"{name}-{re.sub(':(policy|role)/', '/', arn.partition(':iam::')[2])}"


@dataclass(frozen=True)
class FunctionIdentityArgs:
    """``function`` is the function's name without the stack's prefix."""

    scope: Scope
    function: str
    statements: list[Statement]


class FunctionIdentity(pulumi.ComponentResource):
    """A role for a function, with its policy."""

    role_arn: pulumi.Output[str]

    def __init__(
        self, name: str, args: FunctionIdentityArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the identity."""
        super().__init__("gpu-spot:infra:FunctionIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role_name = args.scope.name(args.function, "function")
        trust = aws_service_statements.assumed_by("lambda.amazonaws.com")
        role = declare_role(args.scope, role_name, trust, child)
        policy = aws.iam.RolePolicy(role_name, role=role.name, policy=document(args.statements), opts=child)
        # Depends on the policy: a function or event source created earlier would be denied access.
        self.role_arn = pulumi.Output.all(role.arn, policy.id).apply(lambda parts: str(parts[0]))
        self.register_outputs({"roleArn": self.role_arn})
