"""IAM statements of the instance role for every AWS call of the agent; the Pulumi program renders them.

Placeholders: ``{partition} {region} {account} {stack} {group} {writer} {job} {registry_table} {job_table}
{bucket} {prefix} {secret} {parameter} {queue} {artifacts} {prepared} {prepared_by} {auto_scaling_group}
{tenants} {repository}`` (the last two are ARNs; there may be several secrets, parameters and repositories).
A test records the calls on deployed stacks and checks each against the role that the program declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from contracts.registry import item as registry_item

_EC2: Final = "arn:{partition}:ec2:{region}:{account}"
_SNAPSHOTS: Final = "arn:{partition}:ec2:{region}::snapshot/*"
_AUTO_SCALING_GROUPS: Final = (
    "arn:{partition}:autoscaling:{region}:{account}:autoScalingGroup:*:"
    "autoScalingGroupName/{auto_scaling_group}"
)
_OURS: Final = {
    "StringEquals": {"aws:ResourceTag/gpu-spot:stack": "{stack}", "aws:ResourceTag/gpu-spot:job": "{job}"}
}
_GROUP: Final = {
    "StringEquals": {"aws:ResourceTag/gpu-spot:stack": "{stack}", "aws:ResourceTag/gpu-spot:group": "{group}"}
}
_REQUESTED: Final = {
    "StringEquals": {"aws:RequestTag/gpu-spot:stack": "{stack}", "aws:RequestTag/gpu-spot:job": "{job}"}
}

Conditions = Mapping[str, Mapping[str, str | list[str]]]

INSTANCE_ARN: Final = "${ec2:SourceInstanceARN}"
"""``writer`` of an instance's role. IAM fills in the ARN of the instance that the credentials were issued to.
Source: IAM user guide, "AWS global condition context keys" (``ec2:SourceInstanceARN``), "IAM policy elements:
Variables and tags"."""

Need = Literal[
    "work",
    "release",
    "image",
    "hooks",
    "pull",
    "run",
    "scheduled",
    "experiments",
    "volume",
    "dataset",
    "attached",
    "secret",
    "parameter",
    "artifacts",
    "prepare",
    "prepared",
    "queue",
    "sqs",
    "tenants",
    "proxy",
]
"""Needs of an instance that require permissions: workers, their release, their image in ECR, lifecycle
hooks, an image pull during a launch, a job, its schedule, several experiments of it, its volume, a
dataset in S3, volumes attached at launch, secrets and parameters that the stack file names, artifacts in
S3, preparing a dataset, starting from a prepared dataset, the secret of a queue, an SQS queue, the
tenants of a shared host, each with a volume, a proxy of a service's requests."""


@dataclass(frozen=True)
class Permission:
    """An IAM statement; a role gets it if it has at least one of the needs in ``needed_by``."""

    sid: str
    needed_by: tuple[Need, ...]
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions = field(default_factory=dict)


def _items(
    sid: str,
    needs: tuple[Need, ...],
    actions: str,
    table: Literal["registry", "job"],
    key: str,
    operator: Literal["StringEquals", "StringLike"] = "StringEquals",
) -> Permission:
    """Allow actions on items of one key. ForAllValues is also true without a key; Null denies that case."""
    return Permission(
        sid,
        needs,
        tuple(f"dynamodb:{action}" for action in actions.split()),
        (f"arn:{{partition}}:dynamodb:{{region}}:{{account}}:table/{{{table}_table}}",),
        {
            f"ForAllValues:{operator}": {"dynamodb:LeadingKeys": [key]},
            "Null": {"dynamodb:LeadingKeys": "false"},
        },
    )


def _parameter(sid: str, need: Need, leaf: str, action: str = "PutParameter") -> Permission:
    """Allow writing a parameter of the group, or another action."""
    root = "arn:{partition}:ssm:{region}:{account}:parameter/gpu-spot/{stack}/groups/{group}"
    return Permission(sid, (need,), (f"ssm:{action}",), (f"{root}/{leaf}",))


def _hook(sid: str, need: Need, action: str) -> Permission:
    """Allow a call for the lifecycle hooks of the group."""
    return Permission(sid, (need,), (f"autoscaling:{action}",), (_AUTO_SCALING_GROUPS,), _GROUP)


def _secret(sid: str, need: Need, name: str) -> Permission:
    """Allow reading a secret: its ARN ends with six random characters.

    Source: Secrets Manager guide, "IAM policy examples".
    """
    arn = f"arn:{{partition}}:secretsmanager:{{region}}:{{account}}:secret:{name}-??????"
    return Permission(sid, (need,), ("secretsmanager:GetSecretValue",), (arn,))


_STATEMENTS: Final[tuple[Permission, ...]] = (
    _items(
        "ReportWorkers",
        ("work", "run", "volume", "tenants"),
        "UpdateItem DeleteItem",
        "registry",
        registry_item.partition("{group}", "{writer}"),
    ),
    _items("ReadRelease", ("release",), "GetItem", "registry", "{group}@release"),
    _hook("CompleteHooks", "hooks", "CompleteLifecycleAction"),
    _hook("HoldLaunch", "pull", "RecordLifecycleActionHeartbeat"),
    _items("KeepJob", ("volume", "run"), "GetItem UpdateItem", "job", "{job}"),
    # The job's attempts, an item for each of the last hundred.
    _items("RecordJob", ("run",), "GetItem PutItem", "job", "{job}#??", "StringLike"),
    # The names of experiments start with the group's.
    _items(
        "KeepExperiments", ("experiments",), "GetItem BatchGetItem UpdateItem", "job", "{job}-*", "StringLike"
    ),
    _items("RecordExperiments", ("experiments",), "PutItem", "job", "{job}-*#??", "StringLike"),
    _parameter("EndJob", "run", "finished"),
    _parameter("ReadRun", "scheduled", "run", "GetParameter"),
    Permission("ReadSpotPrices", ("run",), ("ec2:DescribeSpotPriceHistory",), ("*",)),
    _parameter("SayPrepared", "prepare", "prepared"),
    # The item of the preparing job names the snapshot.
    _items("FindPrepared", ("prepared",), "GetItem", "job", "{prepared_by}"),
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
    # Describe actions have no resource-level permissions.
    Permission("FindVolumes", ("volume", "attached", "tenants"), ("ec2:DescribeVolumes",), ("*",)),
    Permission("ReadBandwidth", ("tenants",), ("ec2:DescribeInstanceTypes",), ("*",)),
    Permission("FindSnapshots", ("volume", "tenants"), ("ec2:DescribeSnapshots",), ("*",)),
    Permission("MakeVolume", ("volume",), ("ec2:CreateVolume",), (f"{_EC2}:volume/*",), _REQUESTED),
    # The source: only a snapshot of this job.
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
    # Objects can be overwritten, but neither read nor deleted.
    Permission("StoreArtifacts", ("artifacts",), ("s3:PutObject",), ("arn:{partition}:s3:::{artifacts}*",)),
    Permission(
        "ForgetParts", ("artifacts",), ("s3:AbortMultipartUpload",), ("arn:{partition}:s3:::{artifacts}*",)
    ),
    _secret("OpenSecrets", "secret", "{secret}"),
    Permission(
        "ReadParameters",
        ("parameter",),
        ("ssm:GetParameter",),
        ("arn:{partition}:ssm:{region}:{account}:parameter/{parameter}",),
    ),
    _secret("OpenQueue", "queue", "{queue}"),
    # The token is for the registry, not for a repository.
    Permission("LogInToRegistry", ("image",), ("ecr:GetAuthorizationToken",), ("*",)),
    # Calls of docker with that token, not of the agent.
    Permission(
        "PullImages", ("image",), ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"), ("{repository}",)
    ),
    # A describe action has no resource-level permissions.
    Permission("FindWorkers", ("proxy",), ("ec2:DescribeInstances",), ("*",)),
    _items(
        "ReportRequests",
        ("proxy",),
        "PutItem",
        "registry",
        registry_item.partition("{group}@proxy", "{writer}"),
    ),
    Permission("ReadTenants", ("tenants",), ("s3:GetObject",), ("{tenants}",)),
)


def _of_tenants(statement: Permission) -> Permission:
    """Return a statement on a job's volume, extended to the volumes of all tenants of a host.

    Their job names start with the host's (``tenants.model.volume_job``).
    """
    conditions: dict[str, dict[str, str | list[str]]] = {}
    for operator, keys in statement.conditions.items():
        for key, value in keys.items():
            names_job = value in ("{job}", ["{job}"])
            like = operator.replace("StringEquals", "StringLike") if names_job else operator
            named = [f"{part}-*" for part in value] if isinstance(value, list) else f"{value}-*"
            conditions.setdefault(like, {})[key] = named if names_job else value
    # A tenant's item has only the lease, which is acquired by conditional writes.
    actions = tuple(action for action in statement.actions if action != "dynamodb:GetItem")
    return Permission(f"{statement.sid}OfTenants", ("tenants",), actions, statement.resources, conditions)


STATEMENTS: Final = (
    *_STATEMENTS,
    *(
        _of_tenants(statement)
        for statement in _STATEMENTS
        if "volume" in statement.needed_by and "{job}" in str(statement.conditions)
    ),
)
