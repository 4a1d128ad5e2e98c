"""Every AWS call that the agent makes, as IAM statements for the instance role; the program renders them.

Placeholders: ``{partition} {region} {account} {stack} {group} {job} {registry_table} {job_table} {bucket}
{prefix} {secret} {queue} {artifacts} {prepared} {prepared_by} {auto_scaling_group} {tenants}
{repository}`` (the last two are ARNs). A test records the calls on deployed stacks and holds each to the role
that the program declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

_EC2: Final = "arn:{partition}:ec2:{region}:{account}"
_SNAPSHOTS: Final = "arn:{partition}:ec2:{region}::snapshot/*"
_DYNAMODB: Final = "arn:{partition}:dynamodb:{region}:{account}:table"
_AUTO_SCALING_GROUPS: Final = (
    "arn:{partition}:autoscaling:{region}:{account}:autoScalingGroup:*:"
    "autoScalingGroupName/{auto_scaling_group}"
)
_OURS: Final = {
    "StringEquals": {"aws:ResourceTag/gpu-spot:stack": "{stack}", "aws:ResourceTag/gpu-spot:job": "{job}"}
}
_GROUP: Final = {
    "StringEquals": {
        "aws:ResourceTag/gpu-spot:stack": "{stack}",
        "aws:ResourceTag/gpu-spot:group": "{group}",
    }
}
_REQUESTED: Final = {
    "StringEquals": {"aws:RequestTag/gpu-spot:stack": "{stack}", "aws:RequestTag/gpu-spot:job": "{job}"}
}

Conditions = Mapping[str, Mapping[str, str | list[str]]]

Need = Literal[
    "work",
    "release",
    "image",
    "hooks",
    "pull",
    "run",
    "experiments",
    "volume",
    "dataset",
    "attached",
    "secret",
    "artifacts",
    "prepare",
    "prepared",
    "queue",
    "sqs",
    "tenants",
]
"""What an instance may be there for: workers, what they are started from, their image in ECR, hooks, an image
that a launch waits for, a job, several experiments of it, its volume, a dataset in S3, volumes that came with
the launch, the secret of a private repository, results that go to S3, to prepare a dataset, to start from one
that is prepared, the secret of a queue, a queue of SQS, the tenants of a shared host, each with a volume."""


def _key(name: str, operator: Literal["StringEquals", "StringLike"] = "StringEquals") -> Conditions:
    """Bound a table to items of one key. ForAllValues holds for no key at all, too: Null refuses that."""
    return {
        f"ForAllValues:{operator}": {"dynamodb:LeadingKeys": [name]},
        "Null": {"dynamodb:LeadingKeys": "false"},
    }


@dataclass(frozen=True)
class Permission:
    """An IAM statement; any one of ``needed_by`` asks for it, so that a role gets what its work needs."""

    sid: str
    needed_by: tuple[Need, ...]
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions = field(default_factory=dict)


_STATEMENTS: Final[tuple[Permission, ...]] = (
    Permission(
        "ReportWorkers",
        ("work", "run", "volume", "tenants"),
        ("dynamodb:UpdateItem", "dynamodb:DeleteItem"),
        (f"{_DYNAMODB}/{{registry_table}}",),
        _key("{group}"),
    ),
    Permission(
        "ReadRelease",
        ("release",),
        ("dynamodb:GetItem",),
        (f"{_DYNAMODB}/{{registry_table}}",),
        _key("{group}@release"),
    ),
    Permission(
        "CompleteHooks",
        ("hooks",),
        ("autoscaling:CompleteLifecycleAction",),
        (_AUTO_SCALING_GROUPS,),
        _GROUP,
    ),
    Permission(
        "HoldLaunch",
        ("pull",),
        ("autoscaling:RecordLifecycleActionHeartbeat",),
        (_AUTO_SCALING_GROUPS,),
        _GROUP,
    ),
    Permission(
        "KeepJob",
        ("volume", "run"),
        ("dynamodb:GetItem", "dynamodb:UpdateItem"),
        (f"{_DYNAMODB}/{{job_table}}",),
        _key("{job}"),
    ),
    Permission(
        # The job's history, an item for each of its last hundred instances.
        "RecordJob",
        ("run",),
        ("dynamodb:GetItem", "dynamodb:PutItem"),
        (f"{_DYNAMODB}/{{job_table}}",),
        _key("{job}#??", "StringLike"),
    ),
    Permission(
        # Their names follow from the group's.
        "KeepExperiments",
        ("experiments",),
        ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:UpdateItem"),
        (f"{_DYNAMODB}/{{job_table}}",),
        _key("{job}-*", "StringLike"),
    ),
    Permission(
        "RecordExperiments",
        ("experiments",),
        ("dynamodb:PutItem",),
        (f"{_DYNAMODB}/{{job_table}}",),
        _key("{job}-*#??", "StringLike"),
    ),
    Permission(
        "EndJob",
        ("run",),
        ("ssm:PutParameter",),
        ("arn:{partition}:ssm:{region}:{account}:parameter/gpu-spot/{stack}/groups/{group}/finished",),
    ),
    Permission(
        "SayPrepared",
        ("prepare",),
        ("ssm:PutParameter",),
        ("arn:{partition}:ssm:{region}:{account}:parameter/gpu-spot/{stack}/groups/{group}/prepared",),
    ),
    # Which snapshot counts stands in the item of who made it.
    Permission(
        "FindPrepared",
        ("prepared",),
        ("dynamodb:GetItem",),
        (f"{_DYNAMODB}/{{job_table}}",),
        _key("{prepared_by}"),
    ),
    Permission(
        "CopyPrepared",
        ("prepared",),
        ("ec2:CreateVolume",),
        (_SNAPSHOTS,),
        {
            "StringEquals": {
                "aws:ResourceTag/gpu-spot:stack": "{stack}",
                "aws:ResourceTag/gpu-spot:dataset": "{prepared}",
            }
        },
    ),
    # Descriptions know no resources.
    Permission("FindVolumes", ("volume", "attached", "tenants"), ("ec2:DescribeVolumes",), ("*",)),
    Permission("FindSnapshots", ("volume", "tenants"), ("ec2:DescribeSnapshots",), ("*",)),
    Permission("MakeVolume", ("volume",), ("ec2:CreateVolume",), (f"{_EC2}:volume/*",), _REQUESTED),
    # The source: a snapshot of this job and no other.
    Permission("MakeCopy", ("volume",), ("ec2:CreateVolume",), (_SNAPSHOTS,), _OURS),
    Permission("ReadVolume", ("volume",), ("ec2:CreateSnapshot",), (f"{_EC2}:volume/*",), _OURS),
    Permission("MakeSnapshot", ("volume",), ("ec2:CreateSnapshot",), (_SNAPSHOTS,), _REQUESTED),
    Permission(
        "TagWhatIsMade",
        ("volume",),
        ("ec2:CreateTags",),
        (f"{_EC2}:volume/*", _SNAPSHOTS),
        {
            "StringEquals": {
                **_REQUESTED["StringEquals"],
                "ec2:CreateAction": ["CreateVolume", "CreateSnapshot"],
            }
        },
    ),
    Permission(
        "TagVolume",
        ("volume",),
        ("ec2:CreateTags",),
        (f"{_EC2}:volume/*",),
        {**_OURS, "ForAllValues:StringEquals": {"aws:TagKeys": ["gpu-spot:state", "gpu-spot:token"]}},
    ),
    Permission("GrowVolume", ("volume",), ("ec2:ModifyVolume",), (f"{_EC2}:volume/*",), _OURS),
    Permission(
        "MoveVolume",
        ("volume",),
        ("ec2:AttachVolume", "ec2:DetachVolume", "ec2:DeleteVolume"),
        (f"{_EC2}:volume/*",),
        _OURS,
    ),
    Permission(
        "MoveToInstance",
        ("volume", "tenants"),
        ("ec2:AttachVolume", "ec2:DetachVolume"),
        (f"{_EC2}:instance/*",),
        _GROUP,
    ),
    Permission("DeleteSnapshot", ("volume",), ("ec2:DeleteSnapshot",), (_SNAPSHOTS,), _OURS),
    Permission("ReadDataset", ("dataset",), ("s3:GetObject",), ("arn:{partition}:s3:::{bucket}/{prefix}*",)),
    Permission(
        "ListDataset",
        ("dataset",),
        ("s3:ListBucket",),
        ("arn:{partition}:s3:::{bucket}",),
        {"StringLike": {"s3:prefix": "{prefix}*"}},
    ),
    # What is there can be replaced, but neither read nor deleted.
    Permission("StoreArtifacts", ("artifacts",), ("s3:PutObject",), ("arn:{partition}:s3:::{artifacts}*",)),
    Permission(
        "ForgetParts",
        ("artifacts",),
        ("s3:AbortMultipartUpload",),
        ("arn:{partition}:s3:::{artifacts}*",),
    ),
    Permission(
        # Its ARN ends with six characters that AWS draws (Secrets Manager guide, "IAM policy examples").
        "OpenRepository",
        ("secret",),
        ("secretsmanager:GetSecretValue",),
        ("arn:{partition}:secretsmanager:{region}:{account}:secret:{secret}-??????",),
    ),
    Permission(
        "OpenQueue",
        ("queue",),
        ("secretsmanager:GetSecretValue",),
        ("arn:{partition}:secretsmanager:{region}:{account}:secret:{queue}-??????",),
    ),
    # The token is the registry's, not a repository's.
    Permission("LogInToRegistry", ("image",), ("ecr:GetAuthorizationToken",), ("*",)),
    # Made by docker with that token, not by the agent.
    Permission(
        "PullImages", ("image",), ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"), ("{repository}",)
    ),
    Permission("ReadTenants", ("tenants",), ("s3:GetObject",), ("{tenants}",)),
)


def _of_tenants(one: Permission) -> Permission:
    """Return a statement about a job's volume for the volumes of all tenants of a host.

    They go by names that begin with the host's (``tenants.model.volume_job``).
    """
    conditions: dict[str, dict[str, str | list[str]]] = {}
    for operator, keys in one.conditions.items():
        for key, value in keys.items():
            names_job = value in ("{job}", ["{job}"])
            like = operator.replace("StringEquals", "StringLike") if names_job else operator
            named = [f"{part}-*" for part in value] if isinstance(value, list) else f"{value}-*"
            conditions.setdefault(like, {})[key] = named if names_job else value
    # Of a tenant's item there is the lease alone, which is taken by conditional writes.
    actions = tuple(action for action in one.actions if action != "dynamodb:GetItem")
    return Permission(f"{one.sid}OfTenants", ("tenants",), actions, one.resources, conditions)


STATEMENTS: Final = (
    *_STATEMENTS,
    *(
        _of_tenants(one)
        for one in _STATEMENTS
        if "volume" in one.needed_by and "{job}" in str(one.conditions)
    ),
)
