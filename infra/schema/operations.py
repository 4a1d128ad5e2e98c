"""The shape of ``storage``, ``monitoring`` and ``identity``."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from infra.schema.base import Email, Model, unique
from userdata.agent.config.limits import Name

UserId: TypeAlias = Annotated[int, Field(ge=1, le=4_294_967_295)]
Days: TypeAlias = Annotated[int, Field(ge=1, le=3650)]


class AccessPoint(Model):
    """A folder of the file system that its clients see as the root, as one user."""

    name: Name
    path: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_.-]+){1,4}$", max_length=100)]
    user_id: UserId = 1000
    group_id: UserId = 1000


class FileSystem(Model):
    """A shared file system (EFS). Files unread for ``infrequent_after_days`` move to cheaper storage."""

    infrequent_after_days: Literal[1, 7, 14, 30, 60, 90, 180, 270, 365] = 30
    access_points: tuple[AccessPoint, ...] = ()

    @field_validator("access_points")
    @classmethod
    def _each_once(cls, points: tuple[AccessPoint, ...]) -> tuple[AccessPoint, ...]:
        unique([point.name for point in points], "access points")
        return points


class Bucket(Model):
    """A bucket. ``expire_days`` ends objects, ``old_version_days`` what was overwritten or deleted."""

    name: Name
    expire_days: Days | None = None
    old_version_days: Days = 30


class Repository(Model):
    """A repository of worker images, of which the newest ``keep_images`` stay."""

    name: Name
    keep_images: Annotated[int, Field(ge=1, le=1000)] = 20


class Storage(Model):
    """What outlives instances. Nothing is made unless it stands here."""

    file_system: FileSystem | None = None
    buckets: tuple[Bucket, ...] = ()
    repositories: tuple[Repository, ...] = ()

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
    """Alarms are always declared; ``email`` hears them. A budget is declared where it has an amount.

    Before the alarm, ``shortage_minutes`` is for how long a service may lack ready instances,
    ``standstill_minutes`` for how long a job may stand still (its volume moves, spot is awaited), and
    ``on_demand_minutes`` for how long a group may pay on-demand above its ceiling.
    """

    email: Email | None = None
    shortage_minutes: Annotated[int, Field(ge=1, le=60)] = 10
    standstill_minutes: Annotated[int, Field(ge=1, le=1440)] = 60
    on_demand_minutes: Annotated[int, Field(ge=5, le=1440)] = 60
    monthly_budget_usd: Annotated[Decimal, Field(ge=1, le=100_000_000)] | None = None

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
    """The role that GitHub Actions of ``repository`` assumes on pull requests to preview this stack.

    ``repository`` is ``owner/name``, or with GitHub's ids ``owner@id/name@id``, which no other repository can
    ever get. ``create_provider``: an account has one identity provider for GitHub; only one stack may declare
    it. ``state_bucket`` holds Pulumi's state; leave it out with Pulumi Cloud.
    """

    repository: Annotated[
        str,
        Field(pattern=r"^([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+|[A-Za-z0-9_.-]+@\d+/[A-Za-z0-9_.-]+@\d+)$"),
    ]
    create_provider: bool = False
    state_bucket: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")] | None = None


class Identity(Model):
    """``permissions_boundary`` is the ARN of a policy that bounds every role of the stack."""

    permissions_boundary: (
        Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]+$")] | None
    ) = None
    previews: Previews | None = None
