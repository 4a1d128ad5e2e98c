"""Trust in GitHub jobs, and permissions of previews and the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi

from contracts import names
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
_DATA: Final = (
    "s3:GetObject",
    "s3:GetObjectVersion",
    "s3:ListBucket",
    "secretsmanager:GetSecretValue",
    "ssm:GetParameter",
    "ssm:GetParameterHistory",
    "ssm:GetParameters",
    "ssm:GetParametersByPath",
)
"""What reads objects and their names, secrets and parameters. Source: Service Authorization Reference."""


@dataclass(frozen=True)
class PulumiState:
    """Pulumi's state of one stack, in a bucket of its own.

    ``bucket`` is None with Pulumi Cloud, ``kms_key_arn`` without a KMS key.
    """

    project: str
    stack: str
    bucket: str | None
    kms_key_arn: str | None

    @property
    def read(self) -> list[str]:
        """Return the keys that the engine reads; ``.gz`` and ``.zst`` are the compressed forms.

        Source: pulumi/pulumi ``pkg/backend/diy``: ``meta.go`` (``pulumiMetaPath``), ``store.go``
        (``projectReferenceStore``), ``state.go`` (``stackPath``), ``stack_tags.go`` (``stackTagsPath``).
        """
        checkpoint = f".pulumi/stacks/{self.project}/{self.stack}"
        forms = [f"{checkpoint}.json{compression}" for compression in ("", ".gz", ".zst")]
        return [".pulumi/meta.yaml", *forms, f"{checkpoint}.pulumi-tags"]

    @property
    def write(self) -> list[str]:
        """Return the keys that an update writes, replaces or deletes.

        ``.json.*`` is the compressed forms, their backups (``.bak``) and retained checkpoints. The first
        update, by a person, writes ``meta.yaml``.
        Source: same folder: ``state.go`` (``saveCheckpoint``, ``addToHistory``, ``backupStack``),
        ``lock.go`` (``stackLockDir``).
        """
        of_stack = f"{self.project}/{self.stack}"
        return [
            f".pulumi/stacks/{of_stack}.json",
            f".pulumi/stacks/{of_stack}.json.*",
            *(f".pulumi/{kind}/{of_stack}/*" for kind in ("backups", "history", "locks/organization")),
        ]


def environment_subject(name: str) -> str:
    """Return the end of the subject of jobs with this environment, on any branch or pull request."""
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
    state: PulumiState,
    *,
    images: Sequence[str],
    snapshots: bool,
    queues: Sequence[QueueAccess],
    existing_network: bool,
    interfaces: bool,
    cluster: str | None,
) -> list[Statement]:
    """Return the permissions of a preview: image parameters, lookups, list prices, and the stack's state.

    ``images`` are parameters of this account, ``cluster`` is an existing EKS cluster. A preview writes
    nothing, not even a lock (pulumi/pulumi ``pkg/backend/diy/backend.go``: ``Preview`` calls no ``Lock``,
    and ``apply`` stores nothing for a dry run).
    """
    allowed = [
        Statement("ReadImages", ["ssm:GetParameter"], _images(scope, images)),
        Statement("ReadPrices", ["pricing:GetProducts"], ANY_RESOURCE),
    ]
    if existing_network:
        allowed.append(Statement("FindNetwork", _NETWORK, ANY_RESOURCE))
    if snapshots:
        allowed.append(Statement("FindSnapshots", ["ec2:DescribeSnapshots"], ANY_RESOURCE))
    allowed += merge(statement for queue in queues for statement in queue.preview)
    if interfaces:
        allowed.append(Statement("FindServices", ["ec2:DescribeVpcEndpointServices"], ANY_RESOURCE))
    if cluster is not None:
        arns = [scope.arn("eks", f"cluster/{cluster}")]
        allowed.append(Statement("FindCluster", ["eks:DescribeCluster"], arns))
        allowed.append(Statement("FindAddons", ["eks:DescribeAddonVersions"], ANY_RESOURCE))
    return [*allowed, *read_state(scope, state)]


def read_state(scope: Scope, state: PulumiState) -> list[Statement]:
    """Return the permissions to read the state and to decrypt its secrets.

    The secrets provider decrypts one data key for each command (pulumi/pulumi
    ``pkg/secrets/cloud/manager.go``, ``newCloudSecretsManager``).
    """
    allowed = _read_objects(scope, state)
    if state.kms_key_arn is not None:
        allowed.append(Statement("DecryptState", ["kms:Decrypt"], [state.kms_key_arn]))
    return allowed


def write_state(scope: Scope, state: PulumiState) -> list[Statement]:
    """Return the permissions to read and write the state and its locks, which are objects as well.

    ``kms:GenerateDataKey`` is for a bucket that encrypts with the key (S3 user guide, "Using server-side
    encryption with AWS KMS keys").
    """
    allowed = read_state(scope, state)
    if state.bucket is not None:
        actions = ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
        allowed.append(Statement("WriteState", actions, _objects(scope, state.bucket, state.write)))
    if state.kms_key_arn is not None:
        allowed.append(Statement("EncryptState", ["kms:GenerateDataKey"], [state.kms_key_arn]))
    return allowed


def detect_drift(scope: Scope, state: PulumiState, images: Sequence[str]) -> list[Statement]:
    """Return the permissions of drift detection beside its policies, which may be AWS's ``ReadOnlyAccess``.

    Whatever the policies allow, the role reads no objects, parameters and secrets except the stack's own, by
    the prefix of their names, the images and the state.
    """
    of_stack = [
        pulumi.Output.concat("arn:", scope.partition, f":s3:::{scope.prefix.lower()}*"),
        *(resource for statement in _read_objects(scope, state) for resource in statement.resources),
        *_images(scope, images),
        scope.arn("ssm", f"parameter{names.parameter_root(scope.stack)}/*"),
        scope.arn("secretsmanager", f"secret:{scope.prefix}*"),
    ]
    only = Statement("ReadNoOtherStack", _DATA, effect="Deny", not_resources=of_stack)
    return [*read_state(scope, state), only]


def _images(scope: Scope, paths: Sequence[str]) -> list[pulumi.Output[str]]:
    """Return the ARNs of AWS's image parameters and of those of this account at ``paths``."""
    public = pulumi.Output.concat("arn:", scope.partition, ":ssm:", scope.region, "::parameter/aws/service/*")
    return [public, *(scope.arn("ssm", f"parameter{path}") for path in paths)]


def _read_objects(scope: Scope, state: PulumiState) -> list[Statement]:
    """Return the permissions to read the state's bucket.

    Listing has no condition on the prefix: the engine reads keys that may be missing, and S3 answers "not
    found" only to a caller who may list the bucket (S3 API reference, ``GetObject``, "Permissions"). Hence a
    bucket for each stack.
    """
    if state.bucket is None:
        return []
    bucket = pulumi.Output.concat("arn:", scope.partition, ":s3:::", state.bucket)
    return [
        Statement("ListState", ["s3:ListBucket"], [bucket]),
        Statement("ReadState", ["s3:GetObject"], _objects(scope, state.bucket, state.read)),
    ]


def _objects(scope: Scope, bucket: str, keys: Sequence[str]) -> list[pulumi.Output[str]]:
    return [pulumi.Output.concat("arn:", scope.partition, f":s3:::{bucket}/{key}") for key in keys]
