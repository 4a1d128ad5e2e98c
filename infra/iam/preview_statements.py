"""What pull requests may do: preview, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pulumi

from infra.iam.statement import ANY_RESOURCE, Statement
from infra.scope import Scope

_NETWORK: Final = (
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcAttribute",
    "ec2:DescribeVpcs",
)
"""What the provider calls to look up a VPC (its main route table, too), subnets and security groups."""


def assumed_by_pull_requests(
    provider_arn: pulumi.Input[str], issuer: str, audience: str, repository: str
) -> list[Statement]:
    """Trust GitHub's tokens for pull requests of one repository; a fork's tokens name the fork.

    Repositories made, renamed or moved since July 2026 carry ids in their subject, ``owner@id/name@id``
    (GitHub, "OpenID Connect reference", immutable subject claims). A ``repository`` that is given with ids is
    trusted by them alone.
    """
    forms = [repository]
    if "@" not in repository:
        # An id holds no colon and no name holds an at sign: the pattern fits no other repository's claim.
        forms.append("/".join(f"{part}@*" for part in repository.split("/")))
    return [
        Statement(
            "Assume",
            ["sts:AssumeRoleWithWebIdentity"],
            principal={"Federated": provider_arn},
            conditions={
                "StringEquals": {f"{issuer}:aud": audience},
                "StringLike": {f"{issuer}:sub": [f"repo:{form}:pull_request" for form in forms]},
            },
        )
    ]


def previews(
    scope: Scope,
    state_bucket: str | None,
    *,
    images: Sequence[str],
    snapshots: bool,
    brokers: bool,
    existing_network: bool,
    interfaces: bool,
    cluster: str | None,
) -> list[Statement]:
    """What a preview needs: image parameters, what it looks up, the state if it is in a bucket.

    ``images`` are parameters of this account, ``cluster`` is one of EKS that is there. A preview takes no
    lock of the state: Pulumi's DIY backend locks for what changes it alone.
    """
    public = pulumi.Output.concat("arn:", scope.partition, ":ssm:", scope.region, "::parameter/aws/service/*")
    own = [scope.arn("ssm", f"parameter{path}") for path in images]
    network = _NETWORK if existing_network else ["ec2:DescribeVpcs"]
    allowed = [
        Statement("ReadImages", ["ssm:GetParameter"], [public, *own]),
        Statement("FindNetwork", network, ANY_RESOURCE),
    ]
    if snapshots:
        allowed.append(Statement("FindSnapshots", ["ec2:DescribeSnapshots"], ANY_RESOURCE))
    if brokers:
        allowed.append(Statement("DrawPasswords", ["secretsmanager:GetRandomPassword"], ANY_RESOURCE))
    if interfaces:
        allowed.append(Statement("FindServices", ["ec2:DescribeVpcEndpointServices"], ANY_RESOURCE))
    if cluster is not None:
        found = [scope.arn("eks", f"cluster/{cluster}")]
        allowed.append(Statement("FindCluster", ["eks:DescribeCluster"], found))
    if state_bucket is None:
        return allowed
    arn = pulumi.Output.concat("arn:", scope.partition, ":s3:::", state_bucket)
    return [
        *allowed,
        Statement("ListState", ["s3:ListBucket"], [arn]),
        Statement("ReadState", ["s3:GetObject"], [pulumi.Output.concat(arn, "/.pulumi/*")]),
    ]
