"""Roles of a cluster with AWS managed policies."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from infra.components.identity.identity import declare_role
from infra.iam import aws_service_statements, cluster_statements
from infra.scope import Scope


def service_role(
    scope: Scope, short: str, service: str, policies: Sequence[str], opts: pulumi.ResourceOptions
) -> tuple[aws.iam.Role, list[pulumi.Resource]]:
    """Declare a role that an AWS service assumes; return it, and its AWS managed policies, given by name.

    What has the role depends on them: without them EKS leaves instances and interfaces, and pods get no
    credentials (terraform-provider-aws, ``website/docs/r/eks_node_group.html.markdown``).
    """
    role = declare_role(scope, scope.name(short), aws_service_statements.assumed_by(service), opts)
    return role, [
        aws.iam.RolePolicyAttachment(
            scope.name(short, policy, limit=128),
            role=role.name,
            policy_arn=cluster_statements.managed_policy_arn(scope, policy),
            opts=opts,
        )
        for policy in policies
    ]
