"""Identity of an on-premises host of a service."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import schema
from infra.components.identity.identity import declare_role
from infra.iam import instance_statements
from infra.iam.statement import document
from infra.scope import Scope


@dataclass(frozen=True)
class HostIdentityArgs:
    """``group`` is the service; ``settings`` and ``host`` say who may assume the role."""

    scope: Scope
    group: str
    settings: schema.OnPremises
    host: schema.ListedHost
    access: instance_statements.InstanceAccess


class HostIdentity(pulumi.ComponentResource):
    """A managed policy, and a role with it if the settings say who may assume it."""

    policy_arn: pulumi.Output[str]
    role_arn: pulumi.Output[str] | None = None

    def __init__(self, name: str, args: HostIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the identity."""
        super().__init__("gpu-spot:infra:HostIdentity", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        tags = scope.tags(name, group=args.group)
        self.policy_arn = aws.iam.Policy(
            name,
            description=f"Report workers of {args.group} on {args.host.name}, and read their queue",
            policy=document(
                instance_statements.on_premises(
                    scope, group=args.group, host=args.host.name, access=args.access
                )
            ),
            tags=tags,
            opts=child,
        ).arn
        if trust := instance_statements.assumed_by_host(args.settings, args.host):
            role = declare_role(scope, name, trust, child, args.group)
            aws.iam.RolePolicyAttachment(name, role=role.name, policy_arn=self.policy_arn, opts=child)
            self.role_arn = role.arn
        self.register_outputs({"policyArn": self.policy_arn, "roleArn": self.role_arn})
