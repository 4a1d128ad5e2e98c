"""Options common to all launch templates: metadata, root volume, tags."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pulumi_aws as aws

from infra.scope import Scope

AMAZON_LINUX: Final = (
    "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{architecture}"
)
"""Amazon Linux 2023: it includes the Systems Manager agent, and its packages come from S3."""
AMAZON_LINUX_ROOT: Final = "/dev/xvda"
"""Its root device."""


def metadata_options(*, with_tags: bool = False) -> aws.ec2.LaunchTemplateMetadataOptionsArgs:
    """Return options for IMDSv2 only, with a hop limit of one.

    One hop ends on the instance: containers on a bridge network and pods cannot get its credentials.
    ``with_tags`` exposes the instance's tags.
    """
    return aws.ec2.LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=1,
        instance_metadata_tags="enabled" if with_tags else None,
    )


def root_volume(
    scope: Scope, device: str, gib: int, throughput_mib: int | None = None
) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgs:
    """Return an encrypted root volume, deleted with its instance; ``device`` is the image's name for it."""
    return aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
        device_name=device,
        ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
            volume_type="gp3",
            volume_size=gib,
            throughput=throughput_mib,
            encrypted="true",
            kms_key_id=scope.kms_key_arn,
            delete_on_termination="true",
        ),
    )


def tag_specifications(
    tags: dict[str, str], kinds: Collection[str] = ("instance", "volume", "network-interface")
) -> list[aws.ec2.LaunchTemplateTagSpecificationArgs]:
    """Return tags for all resources of a launch; tags of the provider and of a group reach only instances."""
    return [aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags) for kind in kinds]
