"""The scope of a stack: names, tags, account, Region and resource options for all components."""

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

MIN_NAME_LIMIT: Final = 64
"""Length limit of the names of IAM roles, Lambda functions and EventBridge rules."""
NAME_SUFFIX_LENGTH: Final = 8
"""Length of the suffix of Pulumi's auto-naming: a hyphen and seven hexadecimal digits."""


@dataclass(frozen=True)
class Scope:
    """A stack in an account and Region.

    Attributes:
        stack: the stack's name in AWS: in physical names, tags and parameters.
        logical_prefix: begins each logical name of a component in another program, which may have two.
            A URN names its stack already, so that a renamed stack replaces nothing.
        extra_tags: tags of the stack file.
        permissions_boundary: ARN of the permissions boundary of every role.
        protect: whether Pulumi protects resources that hold data from deletion.
        kms_key_arn: customer managed key for everything that the stack stores; None for AWS's own keys.
        parent: parent of all resources, whose provider also serves lookups.
        export: called with the name and the value of each stack output.
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
    logical_prefix: str = ""

    def __post_init__(self) -> None:
        """Raise ``SettingsError`` for a stack name that is not allowed in the name of a Lambda function."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", self.stack):
            raise SettingsError(
                f"the stack's name must have letters, digits and hyphens only, not {self.stack!r}"
            )

    @property
    def prefix(self) -> str:
        """Prefix of the physical names of all auto-named resources of the stack."""
        return f"gpu-spot-{self.stack}-"

    @property
    def child_options(self) -> pulumi.ResourceOptions:
        """Options of resources directly below the stack, or below the component that replaces it."""
        return pulumi.ResourceOptions(parent=self.parent)

    @property
    def invoke_options(self) -> pulumi.InvokeOptions:
        """Options of lookups, which use the provider of the resources."""
        return pulumi.InvokeOptions(parent=self.parent)

    def name(self, *parts: str, limit: int = MIN_NAME_LIMIT) -> str:
        """Return a logical name. The engine adds a prefix and a random suffix for the physical name.

        ``limit`` is the length limit of physical names of the type. The pattern is ``pulumi:autonaming`` in
        ``Pulumi.yaml``.
        """
        logical = "-".join(parts)
        name = self.prefix + logical
        if len(name) + NAME_SUFFIX_LENGTH > limit:
            raise SettingsError(
                f"resource name {name!r} must have at most {limit - NAME_SUFFIX_LENGTH} characters, "
                f"not {len(name)}; shorten the name of the stack or the service"
            )
        return self.logical_prefix + logical

    def physical(self, name: str) -> str:
        """Return the physical name of a logical one, without the random suffix."""
        return self.prefix + name.removeprefix(self.logical_prefix)

    def tags(self, name: str, *, group: str | None = None, group_role: str | None = None) -> dict[str, str]:
        """Return a resource's tags: those of the stack file, ``Name``, stack, and if given group and role.

        ``name`` is the logical name.
        """
        tags = {**self.extra_tags, "Name": self.physical(name), names.TAG_STACK: self.stack}
        if group is not None:
            tags[names.TAG_GROUP] = group
        if group_role is not None:
            tags[names.TAG_GROUP_ROLE] = group_role
        return tags

    def stateful_options(self, parent: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return the options of a child that holds data and is subject to ``protect``."""
        return pulumi.ResourceOptions(parent=parent, protect=self.protect or None)

    def oidc_provider_arn(self, issuer: str) -> pulumi.Output[str]:
        """Return the ARN of the account's OIDC identity provider for ``issuer`` (a host name)."""
        return pulumi.Output.concat(
            "arn:", self.partition, ":iam::", self.account_id, ":oidc-provider/", issuer
        )

    def image_repository_arn(self, account: str, region: str, repository: str) -> pulumi.Output[str]:
        """Return the ARN of an ECR repository, also of another account or Region."""
        return pulumi.Output.concat(
            "arn:", self.partition, f":ecr:{region}:{account}:repository/{repository}"
        )

    def arn(self, service: str, resource: pulumi.Input[str]) -> pulumi.Output[str]:
        """Return the ARN of ``resource`` (the last part; may have wildcards) in the account and Region."""
        return pulumi.Output.concat(
            "arn:", self.partition, ":", service, ":", self.region, ":", self.account_id, ":", resource
        )


def check_size(
    subject: str, size: int, limit: int, unit: str, remedy: str = "divide the entries between two stacks"
) -> None:
    """Raise ``SettingsError`` for what AWS would refuse because of its size."""
    if size > limit:
        raise SettingsError(f"{subject} must have at most {limit:,} {unit}, not {size:,}; {remedy}")


def build_scope(
    settings: Settings,
    stack: str,
    parent: pulumi.Resource | None = None,
    export: Callable[[str, Any], None] = pulumi.export,
    logical_prefix: str = "",
) -> Scope:
    """Return the scope of the stack of ``settings``; the arguments are those of ``Scope``."""
    invoke_options = pulumi.InvokeOptions(parent=parent)
    return Scope(
        stack=stack,
        region=settings.region,
        account_id=aws.get_caller_identity_output(opts=invoke_options).account_id,
        partition=aws.get_partition_output(opts=invoke_options).partition,
        extra_tags=settings.tags,
        permissions_boundary=settings.identity.permissions_boundary,
        protect=settings.protect,
        kms_key_arn=settings.kms_key_arn,
        parent=parent,
        export=export,
        logical_prefix=logical_prefix,
    )
