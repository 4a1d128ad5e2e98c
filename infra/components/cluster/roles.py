"""Roles of a cluster with AWS managed policies."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from infra.iam import aws_service_statements, cluster_statements
from infra.iam.statement import document
from infra.scope import Scope


def service_role(
    scope: Scope, short: str, service: str, policies: Sequence[str], opts: pulumi.ResourceOptions
) -> aws.iam.Role:
    """Declare a role that an AWS service assumes, with AWS managed policies by name."""
    name = scope.name(short)
    role = aws.iam.Role(
        name,
        assume_role_policy=document(aws_service_statements.assumed_by(service)),
        permissions_boundary=scope.permissions_boundary,
        tags=scope.tags(name),
        opts=opts,
    )
    for policy in policies:
        aws.iam.RolePolicyAttachment(
            scope.name(short, policy, limit=128),
            role=role.name,
            policy_arn=cluster_statements.managed_policy_arn(scope, policy),
            opts=opts,
        )
    return role
