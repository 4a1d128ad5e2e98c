"""Trust in GitHub jobs, and permissions of previews and the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pulumi

from infra.iam.queue_statements import QueueAccess, merge
from infra.iam.statement import ANY_RESOURCE, Statement
from infra.scope import Scope

_NETWORK: Final = (
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcAttribute",
    "ec2:DescribeVpcs",
)
"""The provider's calls to look up a VPC, its main route table, subnets and security groups."""


PULL_REQUESTS: Final = "pull_request"
"""End of the OIDC subject of a pull request's jobs; tokens of a fork name the fork."""


def environment_subject(name: str) -> str:
    """Return the end of the subject of jobs with this environment, on any branch."""
    return f"environment:{name}"


def branch_subject(name: str) -> str:
    """Return the end of the subject of a branch's jobs without an environment.

    Scheduled jobs run on the default branch (GitHub, "Events that trigger workflows").
    """
    return f"ref:refs/heads/{name}"


def assumed_by_jobs(
    provider_arn: pulumi.Input[str], issuer: str, client_id: str, repository: str, jobs: str
) -> list[Statement]:
    """Trust GitHub's tokens for some jobs of one repository (GitHub, "OpenID Connect reference").

    AWS checks no claim except the subject, so an environment is not bound to a branch here. The subject of
    repositories created, renamed or transferred since July 2026 has ids, ``owner@id/name@id`` (same page,
    immutable subject claims). A ``repository`` with ids is trusted in that form only.
    """
    forms = [repository]
    if "@" not in repository:
        # An id has no colon and a name no at sign: the pattern matches no other repository.
        forms.append("/".join(f"{part}@*" for part in repository.split("/")))
    return [
        Statement(
            "Assume",
            ["sts:AssumeRoleWithWebIdentity"],
            principal={"Federated": provider_arn},
            conditions={
                "StringEquals": {f"{issuer}:aud": client_id},
                "StringLike": {f"{issuer}:sub": [f"repo:{form}:{jobs}" for form in forms]},
            },
        )
    ]


def previews(
    scope: Scope,
    state_bucket: str | None,
    *,
    images: Sequence[str],
    snapshots: bool,
    queues: Sequence[QueueAccess],
    existing_network: bool,
    interfaces: bool,
    cluster: str | None,
) -> list[Statement]:
    """Return the permissions of a preview: image parameters, lookups, and the state in a bucket.

    ``images`` are parameters of this account, ``cluster`` is an existing EKS cluster. A preview does not lock
    the state: Pulumi's DIY backend locks it for changes only.
    """
    public = pulumi.Output.concat("arn:", scope.partition, ":ssm:", scope.region, "::parameter/aws/service/*")
    own_images = [scope.arn("ssm", f"parameter{path}") for path in images]
    network = _NETWORK if existing_network else ["ec2:DescribeVpcs"]
    allowed = [
        Statement("ReadImages", ["ssm:GetParameter"], [public, *own_images]),
        Statement("FindNetwork", network, ANY_RESOURCE),
    ]
    if snapshots:
        allowed.append(Statement("FindSnapshots", ["ec2:DescribeSnapshots"], ANY_RESOURCE))
    allowed += merge(statement for queue in queues for statement in queue.preview)
    if interfaces:
        allowed.append(Statement("FindServices", ["ec2:DescribeVpcEndpointServices"], ANY_RESOURCE))
    if cluster is not None:
        arns = [scope.arn("eks", f"cluster/{cluster}")]
        allowed.append(Statement("FindCluster", ["eks:DescribeCluster"], arns))
    return [*allowed, *read_state(scope, state_bucket)]


def read_state(scope: Scope, bucket: str | None) -> list[Statement]:
    """Return the permissions to read the state; empty without a bucket."""
    return _state(scope, bucket, Statement("ReadState", ["s3:GetObject"]))


def write_state(scope: Scope, bucket: str | None) -> list[Statement]:
    """Return the permissions to write the state and its locks, which are objects as well."""
    return _state(scope, bucket, Statement("WriteState", ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]))


def _state(scope: Scope, bucket: str | None, objects: Statement) -> list[Statement]:
    if bucket is None:
        return []
    arn = pulumi.Output.concat("arn:", scope.partition, ":s3:::", bucket)
    return [
        Statement("ListState", ["s3:ListBucket"], [arn]),
        replace(objects, resources=[pulumi.Output.concat(arn, "/.pulumi/*")]),
    ]
