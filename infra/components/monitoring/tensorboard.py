"""TensorBoard for all jobs on the file system, on an instance that a user starts."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import schema
from infra.components.capacity.launch_options import (
    AMAZON_LINUX,
    AMAZON_LINUX_ROOT,
    metadata_options,
    root_volume,
    tag_specifications,
)
from infra.components.identity.identity import declare_role
from infra.components.storage.file_system import FileSystem
from infra.iam import aws_service_statements, instance_statements
from infra.iam.statement import document
from infra.scope import Scope
from userdata.tensorboard import render


@dataclass(frozen=True)
class TensorBoardArgs:
    """``subnet_id`` and ``security_group_ids`` are the instance's; it needs outbound access only.

    ``has_public_address``: its subnet has no NAT gateway, but an internet gateway.
    """

    scope: Scope
    settings: schema.TensorBoard
    files: FileSystem
    subnet_id: pulumi.Input[str]
    security_group_ids: Sequence[pulumi.Input[str]]
    has_public_address: bool


class TensorBoard(pulumi.ComponentResource):
    """A launch template with its role, policy and instance profile."""

    template_id: pulumi.Output[str]

    def __init__(self, name: str, args: TensorBoardArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the launch template."""
        super().__init__("gpu-spot:infra:TensorBoard", name, None, opts)
        scope, settings, child = args.scope, args.settings, pulumi.ResourceOptions(parent=self)
        tags = scope.tags(name)
        point = args.files.access_point_arns[settings.access_point]
        role = declare_role(scope, name, aws_service_statements.assumed_by("ec2.amazonaws.com"), child)
        aws.iam.RolePolicy(
            name,
            role=role.name,
            policy=document(instance_statements.file_system_reader(args.files.arn, point)),
            opts=child,
        )
        profile = aws.iam.InstanceProfile(name, role=role.name, tags=tags, opts=child)
        boot_data = pulumi.Output.all(
            args.files.id, args.files.access_point_ids[settings.access_point]
        ).apply(lambda ids: base64.b64encode(render(*ids).encode()).decode())
        template = aws.ec2.LaunchTemplate(
            name,
            description="Shows TensorBoard until it is unused",
            image_id=AMAZON_LINUX.format(architecture=settings.architecture),
            instance_type=settings.instance_type,
            iam_instance_profile=aws.ec2.LaunchTemplateIamInstanceProfileArgs(arn=profile.arn),
            # It shuts itself down, which terminates it.
            instance_initiated_shutdown_behavior="terminate",
            network_interfaces=[
                aws.ec2.LaunchTemplateNetworkInterfaceArgs(
                    device_index=0,
                    subnet_id=args.subnet_id,
                    security_groups=list(args.security_group_ids),
                    associate_public_ip_address=str(args.has_public_address).lower(),
                    delete_on_termination="true",
                )
            ],
            metadata_options=metadata_options(),
            block_device_mappings=[root_volume(scope, AMAZON_LINUX_ROOT, 10)],
            tag_specifications=tag_specifications(tags),
            user_data=boot_data,
            update_default_version=True,
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self, hide_diffs=["userData"]),
        )
        self.template_id = template.id
        self.register_outputs({"templateId": template.id})
