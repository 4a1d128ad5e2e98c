"""Whom of GitHub's jobs roles trust, and what pull requests may do: preview, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pulumi

from infra.iam.queue_statements import QueueAccess, merged
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


PULL_REQUESTS: Final = "pull_request"
"""How the subject of a pull request's jobs ends; a fork's tokens name the fork."""


def of_environment(name: str) -> str:
    """Return how the subject of jobs ends that name an environment, on whatever branch they run."""
    return f"environment:{name}"


def of_branch(name: str) -> str:
    """Return how the subject of a branch's jobs ends that name no environment: pushed, or by a schedule.

    A schedule runs on the default branch (GitHub, "Events that trigger workflows").
    """
    return f"ref:refs/heads/{name}"


def assumed_by_jobs(
    provider_arn: pulumi.Input[str], issuer: str, audience: str, repository: str, jobs: str
) -> list[Statement]:
    """Trust GitHub's tokens for some jobs of one repository (GitHub, "OpenID Connect reference").

    AWS checks the subject and no claim beside it, so an environment is not bound to a branch here.
    Repositories made, renamed or moved since July 2026 carry ids in their subject, ``owner@id/name@id`` (the
    same page, immutable subject claims). A ``repository`` that is given with ids is trusted by them alone.
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
    allowed += merged(statement for queue in queues for statement in queue.preview)
    if interfaces:
        allowed.append(Statement("FindServices", ["ec2:DescribeVpcEndpointServices"], ANY_RESOURCE))
    if cluster is not None:
        found = [scope.arn("eks", f"cluster/{cluster}")]
        allowed.append(Statement("FindCluster", ["eks:DescribeCluster"], found))
    return [*allowed, *read_state(scope, state_bucket)]


def read_state(scope: Scope, bucket: str | None) -> list[Statement]:
    """What whoever previews needs of the state; nothing where it is in no bucket."""
    return _state(scope, bucket, Statement("ReadState", ["s3:GetObject"]))


def write_state(scope: Scope, bucket: str | None) -> list[Statement]:
    """What whoever deploys needs of the state: with its locks, which are objects as well."""
    return _state(scope, bucket, Statement("WriteState", ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]))


def _state(scope: Scope, bucket: str | None, objects: Statement) -> list[Statement]:
    if bucket is None:
        return []
    arn = pulumi.Output.concat("arn:", scope.partition, ":s3:::", bucket)
    return [
        Statement("ListState", ["s3:ListBucket"], [arn]),
        replace(objects, resources=[pulumi.Output.concat(arn, "/.pulumi/*")]),
    ]
