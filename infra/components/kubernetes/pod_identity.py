"""A role for pods, by EKS Pod Identity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.components.identity.identity import attach, declare_role
from infra.iam import cluster_statements, kubernetes_statements
from infra.iam.statement import Statement, document
from infra.scope import Scope


@dataclass(frozen=True)
class PodIdentityArgs:
    """Arguments of ``PodIdentity``.

    Attributes:
        account: A service account in ``namespace``.
        statements: Permissions of its pods.
        managed_policies: Names of AWS managed policies.
        policy_arns: Managed policies that the stack file names.
        group: The entry of the pods, for tags.
        created_cluster_name: The cluster's name as an output of its creation by the stack.
    """

    scope: Scope
    cluster: str
    namespace: str
    account: str
    statements: Sequence[Statement]
    managed_policies: Sequence[str] = ()
    policy_arns: Sequence[str] = ()
    group: str | None = None
    created_cluster_name: pulumi.Input[str] | None = None


class PodIdentity(pulumi.ComponentResource):
    """A role and its association with a service account."""

    role_arn: pulumi.Output[str]

    def __init__(self, name: str, args: PodIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the identity."""
        super().__init__("gpu-spot:infra:PodIdentity", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        tags = scope.tags(name, group=args.group)
        trust = kubernetes_statements.assumed_by_pods(scope, args.cluster, args.namespace, args.account)
        role = declare_role(scope, name, trust, child, args.group)
        if args.statements:
            aws.iam.RolePolicy(name, role=role.name, policy=document(args.statements), opts=child)
        for policy in args.managed_policies:
            aws.iam.RolePolicyAttachment(
                f"{name}-{policy.rpartition('/')[2]}",
                role=role.name,
                policy_arn=cluster_statements.managed_policy_arn(scope, policy),
                opts=child,
            )
        attach(role, name, args.policy_arns, child)
        aws.eks.PodIdentityAssociation(
            name,
            cluster_name=args.cluster if args.created_cluster_name is None else args.created_cluster_name,
            namespace=args.namespace,
            service_account=args.account,
            role_arn=role.arn,
            tags=tags,
            opts=child,
        )
        self.role_arn = role.arn
        self.register_outputs({"roleArn": self.role_arn})
