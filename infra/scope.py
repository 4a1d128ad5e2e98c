"""What every component needs to know about the stack: its names, its tags, its place in AWS."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.schema import Settings
from infra.settings import SettingsError

_SHORTEST_LIMIT: Final = 64
"""IAM roles, Lambda functions and EventBridge rules take 64 characters."""
_RANDOM_SUFFIX: Final = 8
"""What Pulumi's auto-naming appends: a dash and seven hexadecimal digits."""


@dataclass(frozen=True)
class Scope:
    """One stack in one account and region. ``extra_tags`` are the user's.

    ``permissions_boundary`` bounds every role, ``protect`` keeps the engine from deleting what holds data,
    ``kms_key_arn`` is the customer's key for all that the stack stores; without one AWS's own keys serve.
    ``parent`` is above everything, and whose provider is asked; ``export`` is who is told the outputs.
    """

    stack: str
    region: str
    account_id: pulumi.Input[str]
    partition: pulumi.Input[str]
    extra_tags: Mapping[str, str] = field(default_factory=dict)
    permissions_boundary: str | None = None
    protect: bool = False
    kms_key_arn: str | None = None
    parent: pulumi.Resource | None = None
    export: Callable[[str, Any], None] = pulumi.export

    def __post_init__(self) -> None:
        """Raise ``SettingsError`` for a stack name that AWS would refuse in the name of a function."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", self.stack):
            raise SettingsError(f"stack name {self.stack!r}, allowed: letters, digits and hyphens")

    @property
    def prefix(self) -> str:
        """What the physical names of all auto-named resources of this stack start with."""
        return f"gpu-spot-{self.stack}-"

    @property
    def below(self) -> pulumi.ResourceOptions:
        """The options of what stands directly below the stack, or below the component that stands for it."""
        return pulumi.ResourceOptions(parent=self.parent)

    @property
    def asking(self) -> pulumi.InvokeOptions:
        """The options of a lookup: it asks the account and region where the resources will be."""
        return pulumi.InvokeOptions(parent=self.parent)

    def name(self, *parts: str, limit: int = _SHORTEST_LIMIT) -> str:
        """Return a logical name. Pulumi appends a random suffix to make the physical one.

        ``limit`` is what AWS allows that one, for types that take fewer characters than the others.
        """
        name = self.prefix + "-".join(parts)
        if len(name) + _RANDOM_SUFFIX > limit:
            raise SettingsError(
                f"resource name {name!r} has {len(name)} characters, allowed: "
                f"{limit - _RANDOM_SUFFIX} (shorten the name of the stack or the service)"
            )
        return name

    def tags(self, name: str, *, group: str | None = None, side: str | None = None) -> dict[str, str]:
        """Return a resource's tags: the user's, ``Name``, the stack, and where they apply group and side."""
        tags = {**self.extra_tags, "Name": name, names.TAG_STACK: self.stack}
        if group is not None:
            tags[names.TAG_GROUP] = group
        if side is not None:
            tags[names.TAG_SIDE] = side
        return tags

    def stateful(self, parent: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of a child that holds data, which ``protect`` keeps from being deleted."""
        return pulumi.ResourceOptions(parent=parent, protect=self.protect or None)

    def oidc_provider_arn(self, issuer: str) -> pulumi.Output[str]:
        """Return the ARN of this account's identity provider for ``issuer`` (a host name)."""
        return pulumi.Output.concat(
            "arn:", self.partition, ":iam::", self.account_id, ":oidc-provider/", issuer
        )

    def arn_of_image(self, account: str, region: str, repository: str) -> pulumi.Output[str]:
        """Return the ARN of an ECR repository, which may be another account's."""
        return pulumi.Output.concat(
            "arn:", self.partition, f":ecr:{region}:{account}:repository/{repository}"
        )

    def arn(self, service: str, resource: pulumi.Input[str]) -> pulumi.Output[str]:
        """Return the ARN of ``resource`` (its last part, patterns allowed) in this account and region."""
        return pulumi.Output.concat(
            "arn:", self.partition, ":", service, ":", self.region, ":", self.account_id, ":", resource
        )


def scope_of(
    settings: Settings,
    stack: str,
    parent: pulumi.Resource | None = None,
    export: Callable[[str, Any], None] = pulumi.export,
) -> Scope:
    """Return what the components of ``settings`` know of the stack; the arguments as in ``Scope``."""
    asking = pulumi.InvokeOptions(parent=parent)
    return Scope(
        stack=stack,
        region=settings.region,
        account_id=aws.get_caller_identity_output(opts=asking).account_id,
        partition=aws.get_partition_output(opts=asking).partition,
        extra_tags=settings.tags,
        permissions_boundary=settings.identity.permissions_boundary,
        protect=settings.protect,
        kms_key_arn=settings.kms_key_arn,
        parent=parent,
        export=export,
    )
