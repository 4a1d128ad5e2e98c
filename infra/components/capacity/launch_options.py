"""What every launch template of a stack says alike: metadata, the root volume, whose tags a launch makes."""

from __future__ import annotations

from collections.abc import Collection

import pulumi_aws as aws

from infra.scope import Scope


def metadata_options(*, with_tags: bool = False) -> aws.ec2.LaunchTemplateMetadataOptionsArgs:
    """Return metadata with session tokens alone, and one hop, which ends on the instance.

    So containers on a bridge network, and a cluster's pods, cannot take the instance's credentials.
    ``with_tags`` lets it tell the instance's tags.
    """
    return aws.ec2.LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=1,
        instance_metadata_tags="enabled" if with_tags else None,
    )


def root_volume(scope: Scope, device: str, gib: int) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgs:
    """Return the root volume, encrypted and gone with its instance; ``device`` is as the image names it."""
    return aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
        device_name=device,
        ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
            volume_type="gp3",
            volume_size=gib,
            encrypted="true",
            kms_key_id=scope.kms_key_arn,
            delete_on_termination="true",
        ),
    )


def tagged(
    tags: dict[str, str], kinds: Collection[str] = ("instance", "volume", "network-interface")
) -> list[aws.ec2.LaunchTemplateTagSpecificationArgs]:
    """Return the tags of what a launch makes: the provider's own and a group's reach only instances."""
    return [aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags) for kind in kinds]
