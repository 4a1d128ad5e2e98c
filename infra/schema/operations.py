"""The shape of ``storage``, ``monitoring`` and ``identity``."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from contracts.limits import Name
from infra.schema.base import Email, Model, unique

UserId: TypeAlias = Annotated[int, Field(ge=1, le=4_294_967_295)]
PolicyArn: TypeAlias = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]+$")
]
Days: TypeAlias = Annotated[int, Field(ge=1, le=3650)]


class AccessPoint(Model):
    """A folder of the file system that its clients see as the root, as one user."""

    name: Name
    """Unique in the stack."""
    path: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_.-]+){1,4}$", max_length=100)]
    """The folder."""
    user_id: UserId = 1000
    """As whom clients write."""
    group_id: UserId = 1000
    """Its group."""


class FileSystem(Model):
    """A shared file system (EFS)."""

    infrequent_after_days: Literal[1, 7, 14, 30, 60, 90, 180, 270, 365] = 30
    """Files unread for so long move to cheaper storage."""
    access_points: tuple[AccessPoint, ...] = ()
    """Its folders for clients."""

    @field_validator("access_points")
    @classmethod
    def _each_once(cls, points: tuple[AccessPoint, ...]) -> tuple[AccessPoint, ...]:
        unique([point.name for point in points], "access points")
        return points


class Bucket(Model):
    """A bucket in S3."""

    name: Name
    """Unique in the stack; AWS's has more in it."""
    expire_days: Days | None = None
    """After so long objects are deleted; left out, never."""
    old_version_days: Days = 30
    """So long stays what was overwritten or deleted."""


class Repository(Model):
    """A repository of worker images in ECR."""

    name: Name
    """Unique in the stack; AWS's has more in it."""
    keep_images: Annotated[int, Field(ge=1, le=1000)] = 20
    """So many of the newest stay."""


class Storage(Model):
    """What outlives instances. Nothing is made unless it stands here."""

    file_system: FileSystem | None = None
    """A shared file system."""
    buckets: tuple[Bucket, ...] = ()
    """In S3."""
    repositories: tuple[Repository, ...] = ()
    """Of worker images, in ECR."""

    @field_validator("buckets")
    @classmethod
    def _buckets_once(cls, buckets: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
        unique([bucket.name for bucket in buckets], "buckets")
        return buckets

    @field_validator("repositories")
    @classmethod
    def _repositories_once(cls, repositories: tuple[Repository, ...]) -> tuple[Repository, ...]:
        unique([repository.name for repository in repositories], "repositories")
        return repositories


class Monitoring(Model):
    """Alarms are always declared; somebody hears them where there is an address."""

    email: Email | None = None
    """Who hears alarms; AWS asks them first."""
    shortage_minutes: Annotated[int, Field(ge=1, le=60)] = 10
    """For so long a service may lack ready instances before the alarm."""
    standstill_minutes: Annotated[int, Field(ge=1, le=1440)] = 60
    """For so long a job may stand still before the alarm: its volume moves, spot is awaited."""
    on_demand_minutes: Annotated[int, Field(ge=5, le=1440)] = 60
    """For so long a group may pay on-demand above its ceiling before the alarm."""
    monthly_budget_usd: Annotated[Decimal, Field(ge=1, le=100_000_000)] | None = None
    """Of all that carries the stack's tag; left out, no budget is declared."""

    @field_validator("on_demand_minutes")
    @classmethod
    def _whole_periods(cls, minutes: int) -> int:
        if minutes % 5:
            raise ValueError(f"{minutes} is not a multiple of 5, allowed: 5, 10, 15, … 1440")
        return minutes

    @field_validator("monthly_budget_usd")
    @classmethod
    def _where_budgets_are(cls, amount: Decimal | None, info: ValidationInfo) -> Decimal | None:
        region = str((info.context or {}).get("region", ""))
        if amount is not None and region.startswith("us-gov-"):
            # botocore has no endpoint there: a GovCloud account is billed through a commercial one.
            raise ValueError(f"{amount} in {region}, which has no AWS Budgets, allowed: in other regions")
        return amount


class Previews(Model):
    """The role that GitHub Actions assume on pull requests to preview this stack."""

    repository: Annotated[
        str,
        Field(pattern=r"^([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+|[A-Za-z0-9_.-]+@\d+/[A-Za-z0-9_.-]+@\d+)$"),
    ]
    """``owner/name``, or with GitHub's ids ``owner@id/name@id``, which no other repository can ever get."""
    create_provider: bool = False
    """Whether this stack declares GitHub's identity provider, of which an account has one."""
    state_bucket: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")] | None = None
    """Holds Pulumi's state; left out with Pulumi Cloud."""


class Deploys(Model):
    """The roles that GitHub Actions assume to bring this stack up, and at night to look for drift."""

    policies: Annotated[tuple[PolicyArn, ...], Field(min_length=1, max_length=10, strict=False)]
    """ARNs of policies: what whoever deploys may do, which is yours to bound."""
    environment: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")] | None = None
    """The environment on GitHub whose jobs may deploy; left out, jobs of the branch that name none."""
    branch: Annotated[str, Field(pattern=r"^[A-Za-z0-9_./-]{1,100}$")] = "main"
    """Whose jobs may look for drift."""
    drift_policies: Annotated[tuple[PolicyArn, ...], Field(max_length=10, strict=False)] = ()
    """ARNs of policies: what whoever looks for drift may read; without any AWS's `ReadOnlyAccess`."""

    @field_validator("policies", "drift_policies")
    @classmethod
    def _policies_once(cls, policies: tuple[str, ...]) -> tuple[str, ...]:
        unique(list(policies), "policies")
        return policies


class Identity(Model):
    """What bounds the roles, who previews, and who deploys."""

    permissions_boundary: PolicyArn | None = None
    """The ARN of a policy that bounds every role of the stack."""
    previews: Previews | None = None
    """The role for previews of pull requests."""
    deploys: Deploys | None = None
    """The roles for updates and for drift, for the repository of `previews`."""

    @field_validator("deploys")
    @classmethod
    def _has_a_repository(cls, deploys: Deploys | None, info: ValidationInfo) -> Deploys | None:
        if deploys is not None and "previews" in info.data and info.data["previews"] is None:
            raise ValueError("without previews, allowed: beside it (its repository is trusted)")
        return deploys
