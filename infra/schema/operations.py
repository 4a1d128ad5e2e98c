"""Settings of ``storage``, ``monitoring`` and ``identity``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts.limits import KmsKeyArn, Name
from infra.schema.base import Email, Model, check_unique, each_once

UserId: TypeAlias = Annotated[int, Field(ge=1, le=4_294_967_295)]
PolicyArn: TypeAlias = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]+$")
]
Days: TypeAlias = Annotated[int, Field(ge=1, le=3650)]
GitHubEnvironment: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]


class AccessPoint(Model):
    """An EFS access point: a directory that clients see as the root, with one POSIX user."""

    name: Name
    """Name; unique in the stack."""
    path: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_-][A-Za-z0-9_.-]*){1,4}$", max_length=100)]
    """Path of the directory."""
    user_id: UserId = 1000
    """POSIX user ID of all clients."""
    group_id: UserId = 1000
    """POSIX group ID of all clients."""


class FileSystem(Model):
    """A shared file system in Amazon EFS."""

    infrequent_after_days: Literal[1, 7, 14, 30, 60, 90, 180, 270, 365] = 30
    """Days without access after which a file moves to the Infrequent Access storage class."""
    throughput_mib: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Throughput in MiB/s that is always there, $6 a month each; lowered at most once a day. Default: EFS's
    elastic mode, billed by use: a checkpoint of 10 GB costs $0.60 to write and $0.30 to read."""
    access_points: tuple[AccessPoint, ...] = ()
    """Access points of the file system."""

    @field_validator("access_points")
    @classmethod
    def _each_once(cls, points: tuple[AccessPoint, ...]) -> tuple[AccessPoint, ...]:
        check_unique([point.name for point in points], "access points")
        return points


class Bucket(Model):
    """An S3 bucket."""

    name: Name
    """Name in the stack; the name in S3 has a prefix and a suffix."""
    expire_days: Days | None = None
    """Days after which objects expire. Default: never."""
    old_version_days: Days = 30
    """Days that overwritten and deleted versions are retained."""


class Repository(Model):
    """An ECR repository of worker images."""

    name: Name
    """Name in the stack; the name in ECR has a prefix and a suffix."""
    keep_images: Annotated[int, Field(ge=1, le=1000)] = 20
    """Number of images that are retained, newest first."""


class Storage(Model):
    """Storage that outlives instances. Nothing is created by default."""

    file_system: FileSystem | None = None
    """The shared EFS file system."""
    buckets: tuple[Bucket, ...] = ()
    """S3 buckets."""
    repositories: tuple[Repository, ...] = ()
    """ECR repositories of worker images."""

    @field_validator("buckets", "repositories")
    @classmethod
    def _each_once(cls, entries: Any, info: ValidationInfo) -> Any:
        check_unique([entry.name for entry in entries], str(info.field_name))
        return entries


class Monitoring(Model):
    """Alarms and the budget. Alarms are always created; ``email`` subscribes an address to them."""

    email: Email | None = None
    """Address that receives alarms, after it has confirmed the subscription."""
    shortage_minutes: Annotated[int, Field(ge=1, le=60)] = 10
    """Minutes that a service may be short of ready instances before the alarm."""
    stall_minutes: Annotated[int, Field(ge=1, le=1440)] = 60
    """Minutes that a job may wait for capacity or for its volume before the alarm."""
    on_demand_minutes: Annotated[int, Field(ge=5, le=1440)] = 60
    """Minutes that a group may run more On-Demand capacity than ``capacity.onDemandCeiling`` before the
    alarm. A multiple of 5."""
    monthly_budget_usd: Annotated[Decimal, Field(ge=1, le=100_000_000)] | None = None
    """Monthly AWS budget in US dollars for all resources with the stack's tag. Default: no budget."""

    @field_validator("on_demand_minutes")
    @classmethod
    def _whole_periods(cls, minutes: int) -> int:
        if minutes % 5:
            raise ValueError(f"must be a multiple of 5 from 5 to 1440, not {minutes}")
        return minutes

    @field_validator("monthly_budget_usd")
    @classmethod
    def _where_budgets_are(cls, amount: Decimal | None, info: ValidationInfo) -> Decimal | None:
        region = str((info.context or {}).get("region", ""))
        if amount is not None and region.startswith(("us-gov-", "eusc-")):
            # botocore has no endpoint there: a GovCloud account is billed through a commercial one.
            raise ValueError(f"is {amount}, but AWS Budgets is not available in {region}; remove it")
        return amount


class Previews(Model):
    """The IAM role that GitHub Actions assumes on pull requests to preview the stack."""

    repository: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+@[1-9]\d*/[A-Za-z0-9_.-]+@[1-9]\d*$")]
    """GitHub repository with GitHub's IDs, ``owner@id/name@id``: names can be reused, IDs are not."""
    create_provider: bool = False
    """Whether the stack creates GitHub's OIDC identity provider, of which an account can have one."""
    environment: GitHubEnvironment | None = None
    """GitHub environment whose jobs may preview. Default: ``<stack>-preview``."""
    state_bucket: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")] | None = None
    """S3 bucket with Pulumi's state of this stack and of no other. Leave out with Pulumi Cloud."""
    state_kms_key_arn: KmsKeyArn | None = None
    """ARN of the KMS key of the stack's secrets provider (``awskms://``) or of the state bucket."""

    @field_validator("repository", mode="before")
    @classmethod
    def _has_ids(cls, repository: Any) -> Any:
        if isinstance(repository, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            query = """--jq '"\\(.owner.login)@\\(.owner.id)/\\(.name)@\\(.id)"'"""
            raise ValueError(
                f"must be owner@id/name@id, not {repository} without IDs (`gh api repos/{repository} "
                f"{query}` prints it)"
            )
        return repository


class Deploys(Model):
    """The IAM roles that GitHub Actions assumes to deploy the stack and to detect drift every night."""

    policies: Annotated[tuple[PolicyArn, ...], Field(min_length=1, max_length=10, strict=False)]
    """ARNs of the IAM policies of the deployment role."""
    environment: GitHubEnvironment | None = None
    """GitHub environment whose jobs may deploy. Default: jobs of the branch without an environment."""
    branch: Annotated[str, Field(pattern=r"^[A-Za-z0-9_./-]{1,100}$")] = "main"
    """Branch whose jobs may deploy and detect drift."""
    workflow: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,80}\.yml$")] = "deploy.yml"
    """File in ``.github/workflows`` of the branch whose jobs may deploy."""
    drift_environment: GitHubEnvironment | None = None
    """GitHub environment whose jobs may detect drift. Default: jobs of the branch without an environment."""
    drift_policies: Annotated[tuple[PolicyArn, ...], Field(max_length=10, strict=False)] = ()
    """ARNs of the IAM policies of the drift role. Default: AWS's ``ReadOnlyAccess``."""

    _each_once = field_validator("policies", "drift_policies")(each_once)


class Identity(Model):
    """The permissions boundary, and the roles for previews and deployments."""

    permissions_boundary: PolicyArn | None = None
    """ARN of the IAM policy that is the permissions boundary of every role of the stack."""
    previews: Previews | None = None
    """The role for previews on pull requests."""
    deploys: Deploys | None = None
    """The roles for deployments and drift detection, for the repository of ``previews``."""

    @field_validator("deploys")
    @classmethod
    def _has_a_repository(cls, deploys: Deploys | None, info: ValidationInfo) -> Deploys | None:
        if deploys is not None and "previews" in info.data and info.data["previews"] is None:
            raise ValueError(
                "needs previews, whose trusted repository it names; set previews, or remove this key"
            )
        return deploys
