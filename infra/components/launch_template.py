"""How one side of a capacity group starts an instance."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.scope import Scope
from userdata.render import BootSettings, render

_ROOT_DEVICE: Final = "/dev/sda1"
"""Of Ubuntu images."""


@dataclass(frozen=True)
class LaunchTemplateArgs:
    """``image_id`` as EC2 takes it; ``launch_hook`` is empty without one."""

    scope: Scope
    group: str
    side: str
    image_id: pulumi.Input[str]
    root_volume_gib: int
    slots: int
    launch_hook: str
    profile_arn: pulumi.Input[str]
    security_group_id: pulumi.Input[str]
    registry_table: pulumi.Input[str]


class LaunchTemplate(pulumi.ComponentResource):
    """A launch template: GPU image, IMDSv2 only, encrypted root, tags, boot data. Produces: that template."""

    id: pulumi.Output[str]
    version: pulumi.Output[str]

    def __init__(
        self, name: str, args: LaunchTemplateArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the template."""
        super().__init__("gpu-spot:infra:LaunchTemplate", name, None, opts)
        tags = args.scope.tags(name, group=args.group, side=args.side)
        template = aws.ec2.LaunchTemplate(
            name,
            description=f"{args.side} instances of {args.group}",
            image_id=args.image_id,
            iam_instance_profile=aws.ec2.LaunchTemplateIamInstanceProfileArgs(arn=args.profile_arn),
            vpc_security_group_ids=[args.security_group_id],
            metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled",
                http_tokens="required",
                # One hop: containers on a bridge network cannot take the instance's credentials.
                http_put_response_hop_limit=1,
                # The worker learns the name of its group from its tags.
                instance_metadata_tags="enabled",
            ),
            block_device_mappings=[
                aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
                    device_name=_ROOT_DEVICE,
                    ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                        volume_type="gp3",
                        volume_size=args.root_volume_gib,
                        encrypted="true",
                        delete_on_termination="true",
                    ),
                )
            ],
            # Neither the provider's default tags nor the group's tags reach volumes and network interfaces.
            tag_specifications=[
                aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags)
                for kind in ("instance", "volume", "network-interface")
            ],
            user_data=pulumi.Output.from_input(args.registry_table).apply(
                lambda table: _boot_data(args, table)
            ),
            update_default_version=True,
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.id = template.id
        # `$Latest` would hide a new version from a group: no diff, no effect on a later refresh.
        self.version = template.latest_version.apply(str)
        self.register_outputs({"id": self.id, "version": self.version})


@dataclass(frozen=True)
class Launchable:
    """A launch template and the instance types that its image boots, the first choice first."""

    template: LaunchTemplate
    types: tuple[str, ...]


def looked_up_at_launch(image: str) -> str:
    """Return an image for Auto Scaling, which reads a parameter at each launch.

    No lookup at preview, no diff whenever AWS publishes an image, and new instances start patched.
    """
    return f"resolve:ssm:{image}" if image.startswith("/") else image


def looked_up_at_preview(image: str) -> pulumi.Input[str]:
    """Return an image for a fleet, whose template must hold an AMI id (EC2's API, ``ImageId`` of fleets)."""
    if not image.startswith("/"):
        return image
    value: pulumi.Output[str] = aws.ssm.get_parameter_output(name=image).insecure_value
    return value


def _boot_data(args: LaunchTemplateArgs, registry_table: str) -> str:
    text = render(
        BootSettings(
            region=args.scope.region,
            group=args.group,
            registry_table=registry_table,
            slots=args.slots,
            launch_hook=args.launch_hook,
        )
    )
    return base64.b64encode(text.encode()).decode()
