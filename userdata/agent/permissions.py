"""Every AWS call that the agent makes, as IAM statements for the instance role, one set for each subcommand.

Placeholders: ``{partition} {region} {account} {stack} {group} {job} {registry_table} {job_table} {bucket}
{prefix} {auto_scaling_group} {repository}``. A test compares the actions with the calls that the code makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_EC2: Final = "arn:{partition}:ec2:{region}:{account}"
_SNAPSHOTS: Final = "arn:{partition}:ec2:{region}::snapshot/*"
_DYNAMODB: Final = "arn:{partition}:dynamodb:{region}:{account}:table"
_OURS: Final = {
    "StringEquals": {"aws:ResourceTag/gpu-spot:stack": "{stack}", "aws:ResourceTag/gpu-spot:job": "{job}"}
}
_REQUESTED: Final = {
    "StringEquals": {"aws:RequestTag/gpu-spot:stack": "{stack}", "aws:RequestTag/gpu-spot:job": "{job}"}
}

Conditions = Mapping[str, Mapping[str, str | list[str]]]


@dataclass(frozen=True)
class Statement:
    """An IAM statement; ``needed_by`` names the subcommands, so that a role gets what its work needs."""

    needed_by: tuple[str, ...]
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions = field(default_factory=dict)


STATEMENTS: Final[tuple[Statement, ...]] = (
    Statement(
        ("work", "run"),
        ("dynamodb:UpdateItem", "dynamodb:DeleteItem"),
        (f"{_DYNAMODB}/{{registry_table}}",),
        {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["{group}"]}},
    ),
    Statement(
        ("watch", "hook"),
        ("autoscaling:CompleteLifecycleAction",),
        (
            "arn:{partition}:autoscaling:{region}:{account}:autoScalingGroup:*:"
            "autoScalingGroupName/{auto_scaling_group}",
        ),
    ),
    Statement(
        ("volume", "run"),
        ("dynamodb:GetItem", "dynamodb:UpdateItem"),
        (f"{_DYNAMODB}/{{job_table}}",),
        {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["{job}"]}},
    ),
    Statement(
        ("run",),
        ("ssm:PutParameter",),
        ("arn:{partition}:ssm:{region}:{account}:parameter/gpu-spot/{stack}/groups/{group}/target",),
    ),
    # Descriptions know no resources.
    Statement(("volume", "run"), ("ec2:DescribeVolumes", "ec2:DescribeSnapshots"), ("*",)),
    Statement(("volume",), ("ec2:CreateVolume",), (f"{_EC2}:volume/*",), _REQUESTED),
    # The source: a snapshot of this job and no other.
    Statement(("volume",), ("ec2:CreateVolume",), (_SNAPSHOTS,), _OURS),
    Statement(("volume",), ("ec2:CreateSnapshot",), (f"{_EC2}:volume/*",), _OURS),
    Statement(("volume",), ("ec2:CreateSnapshot",), (_SNAPSHOTS,), _REQUESTED),
    Statement(
        ("volume",),
        ("ec2:CreateTags",),
        (f"{_EC2}:volume/*", _SNAPSHOTS),
        {"StringEquals": {"ec2:CreateAction": ["CreateVolume", "CreateSnapshot"]}},
    ),
    Statement(
        ("volume",),
        ("ec2:CreateTags",),
        (f"{_EC2}:volume/*",),
        {**_OURS, "ForAllValues:StringEquals": {"aws:TagKeys": ["gpu-spot:state", "gpu-spot:token"]}},
    ),
    Statement(("volume", "run"), ("ec2:AttachVolume", "ec2:DetachVolume"), (f"{_EC2}:volume/*",), _OURS),
    Statement(
        ("volume", "run"),
        ("ec2:AttachVolume", "ec2:DetachVolume"),
        (f"{_EC2}:instance/*",),
        {
            "StringEquals": {
                "aws:ResourceTag/gpu-spot:stack": "{stack}",
                "aws:ResourceTag/gpu-spot:group": "{group}",
            }
        },
    ),
    Statement(("volume", "run"), ("ec2:DeleteVolume",), (f"{_EC2}:volume/*",), _OURS),
    Statement(("volume", "run"), ("ec2:DeleteSnapshot",), (_SNAPSHOTS,), _OURS),
    Statement(("volume",), ("s3:GetObject",), ("arn:{partition}:s3:::{bucket}/{prefix}*",)),
    Statement(
        ("volume",),
        ("s3:ListBucket",),
        ("arn:{partition}:s3:::{bucket}",),
        {"StringLike": {"s3:prefix": "{prefix}*"}},
    ),
    # The token is the registry's, not a repository's.
    Statement(("work",), ("ecr:GetAuthorizationToken",), ("*",)),
    # Made by docker with that token, not by the agent.
    Statement(
        ("work",),
        ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"),
        ("arn:{partition}:ecr:{region}:{account}:repository/{repository}",),
    ),
)

BY_DOCKER: Final = frozenset({"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"})
