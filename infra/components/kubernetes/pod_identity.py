"""Who a service's pods are: a role of their own, by EKS Pod Identity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.iam import cluster_statements, kubernetes_statements
from infra.iam.statement import Statement, document
from infra.scope import Scope


@dataclass(frozen=True)
class PodIdentityArgs:
    """``account`` is a service account in ``namespace``; ``allowed`` is what its pods may do.

    ``managed`` are policies of AWS's own, by name. ``group`` is the entry whose pods they are; ``made`` is
    the cluster's name once the stack has made it.
    """

    scope: Scope
    cluster: str
    namespace: str
    account: str
    allowed: Sequence[Statement]
    managed: Sequence[str] = ()
    group: str | None = None
    made: pulumi.Input[str] | None = None


class PodIdentity(pulumi.ComponentResource):
    """Produces: a role, and its association with a service account."""

    role_arn: pulumi.Output[str]

    def __init__(self, name: str, args: PodIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the identity."""
        super().__init__("gpu-spot:infra:PodIdentity", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        tags = scope.tags(name, group=args.group)
        trust = kubernetes_statements.assumed_by_pods(scope, args.cluster, args.namespace, args.account)
        role = aws.iam.Role(
            name,
            assume_role_policy=document(trust),
            permissions_boundary=scope.permissions_boundary,
            tags=tags,
            opts=child,
        )
        if args.allowed:
            aws.iam.RolePolicy(name, role=role.name, policy=document(args.allowed), opts=child)
        for policy in args.managed:
            aws.iam.RolePolicyAttachment(
                f"{name}-{policy.rpartition('/')[2]}",
                role=role.name,
                policy_arn=cluster_statements.managed(scope, policy),
                opts=child,
            )
        aws.eks.PodIdentityAssociation(
            name,
            cluster_name=args.cluster if args.made is None else args.made,
            namespace=args.namespace,
            service_account=args.account,
            role_arn=role.arn,
            tags=tags,
            opts=child,
        )
        self.role_arn = role.arn
        self.register_outputs({"roleArn": self.role_arn})
