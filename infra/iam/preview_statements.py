"""Trust in GitHub jobs, and permissions of previews and the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi

from contracts import names
from infra.iam.queue_statements import QueueAccess, merge
from infra.iam.statement import ANY_RESOURCE, Statement, use_key
from infra.schema import Kubernetes
from infra.scope import Scope

_NETWORK: Final = (
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
)
"""The provider's calls to look up a VPC, its main route table, subnets and security groups."""
_DATA: Final = (
    "s3:GetObject",
    "s3:GetObjectVersion",
    "s3:ListBucket",
    "ssm:GetParameter",
    "ssm:GetParameterHistory",
    "ssm:GetParameters",
    "ssm:GetParametersByPath",
)
"""What reads objects and their names, and parameters. Source: Service Authorization Reference."""


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


@dataclass(frozen=True)
class TrustedJobs:
    """GitHub's jobs that may assume a role: of an environment, of a branch, of a workflow file; None is any.

    A job with an environment has it in its subject, in place of the branch.
    """

    environment: str | None = None
    branch: str | None = None
    workflow: str | None = None

    @property
    def end(self) -> str:
        """The end of the subject. Scheduled jobs run on the default branch."""
        return f"ref:{self.ref}" if self.environment is None else f"environment:{self.environment}"

    @property
    def ref(self) -> str:
        """The branch as the claim ``ref`` has it."""
        return f"refs/heads/{self.branch}"


def assumed_by_jobs(
    provider_arn: pulumi.Input[str], issuer: str, client_id: str, repository: str, jobs: TrustedJobs
) -> list[Statement]:
    """Trust GitHub's tokens for some jobs of ``repository`` (``owner@id/name@id``); all claims are exact.

    A wildcard would also match ``:`` and ``/``: another repository can put claims into its subject (GitHub,
    "Customizing the subject claims"). Repositories created, renamed or transferred since July 2026 have ids
    in it (GitHub, "OpenID Connect reference", immutable subject claims); ``repository_id`` binds both forms.
    STS evaluates it, ``environment``, ``ref`` and ``job_workflow_ref`` since January 2026, according to
    cageyv.dev (6 February 2026) and dev.classmethod.jp (3 February 2026); AWS's own page was not at hand. One
    that it did not evaluate would admit no job. GitHub sends ``job_workflow_ref`` for every job, as PyPI's
    trusted publishers rely on.
    """
    owner, name = (part.partition("@") for part in repository.split("/"))
    short = f"{owner[0]}/{name[0]}"
    claims: dict[str, Any] = {
        "aud": client_id,
        "sub": [f"repo:{form}:{jobs.end}" for form in (repository, short)],
        "repository_id": name[2],
    }
    if jobs.environment is not None:
        claims["environment"] = jobs.environment
    if jobs.branch is not None:
        claims["ref"] = jobs.ref
    if jobs.branch is not None and jobs.workflow is not None:
        claims["job_workflow_ref"] = f"{short}/.github/workflows/{jobs.workflow}@{jobs.ref}"
    return [
        Statement(
            "Assume",
            ["sts:AssumeRoleWithWebIdentity"],
            principal={"Federated": provider_arn},
            conditions={"StringEquals": {f"{issuer}:{claim}": value for claim, value in claims.items()}},
        )
    ]


def previews(
    scope: Scope,
    state: PulumiState,
    *,
    images: Sequence[str],
    snapshots: bool,
    queues: Sequence[QueueAccess],
    vpc_id: str | None,
    interfaces: bool,
    cluster: Kubernetes | None,
) -> list[Statement]:
    """Return the permissions of a preview: image parameters, lookups, list prices, and the stack's state.

    ``images`` are parameters of this account, ``vpc_id`` exists already. A preview writes nothing, not even a
    lock (pulumi/pulumi ``pkg/backend/diy/backend.go``: ``Preview`` calls no ``Lock``, and ``apply`` stores
    nothing for a dry run).
    """
    groups = scope.arn("ssm", f"parameter{names.parameter_root(scope.stack)}/*")
    allowed = [
        Statement("ReadImages", ["ssm:GetParameter"], _images(scope, images)),
        Statement("ReadPrices", ["pricing:GetProducts"], ANY_RESOURCE),
        Statement("FindInstances", ["ec2:DescribeInstances", "tag:GetResources"], ANY_RESOURCE),
        Statement("ReadHosts", ["ssm:GetParametersByPath"], [groups]),
    ]
    if vpc_id is not None:
        allowed.append(Statement("FindNetwork", _NETWORK, ANY_RESOURCE))
        vpc = [scope.arn("ec2", f"vpc/{vpc_id}")]
        allowed.append(Statement("ReadNetwork", ["ec2:DescribeVpcAttribute"], vpc))
    if snapshots:
        allowed.append(Statement("FindSnapshots", ["ec2:DescribeSnapshots"], ANY_RESOURCE))
    allowed += merge(statement for queue in queues for statement in queue.preview)
    if interfaces:
        allowed.append(Statement("FindServices", ["ec2:DescribeVpcEndpointServices"], ANY_RESOURCE))
    if cluster is not None and cluster.create is not None:
        allowed.append(Statement("FindAddons", ["eks:DescribeAddonVersions"], ANY_RESOURCE))
    elif cluster is not None:
        arns = [scope.arn("eks", f"cluster/{cluster.cluster}")]
        allowed.append(Statement("FindCluster", ["eks:DescribeCluster"], arns))
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


def detect_drift(
    scope: Scope, state: PulumiState, images: Sequence[str], buckets: Sequence[pulumi.Input[str]]
) -> list[Statement]:
    """Return the permissions of drift detection beside its policies, which may be AWS's ``ReadOnlyAccess``.

    Whatever the policies allow, the role lists and reads nothing but ``buckets`` (ARNs, also of objects that
    the state has) and the state, no parameters but the stack's own and the images', and no secrets without
    the stack's tag: a prefix of names would also be that of a stack whose name begins alike. A refresh needs
    ``s3:ListBucket`` of each bucket (S3 API reference, ``HeadBucket``), and to decrypt functions' variables
    and secrets (Lambda guide, "Securing Lambda environment variables"; Secrets Manager guide, "Secret
    encryption and decryption").
    """
    of_stack = [
        *buckets,
        *(resource for statement in _read_objects(scope, state) for resource in statement.resources),
        *_images(scope, images),
        scope.arn("ssm", f"parameter/gpu-spot/{scope.stack}/*"),
    ]
    return [
        *read_state(scope, state),
        *use_key(scope, ["lambda", "secretsmanager"], ["kms:Decrypt"]),
        Statement("ReadNoOtherStack", _DATA, effect="Deny", not_resources=of_stack),
        Statement(
            "ReadNoOtherSecret",
            ["secretsmanager:GetSecretValue"],
            ANY_RESOURCE,
            {"StringNotEquals": {f"aws:ResourceTag/{names.TAG_STACK}": scope.stack}},
            effect="Deny",
        ),
    ]


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
