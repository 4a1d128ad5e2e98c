"""How one side of a capacity group starts an instance."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from contracts import codec
from contracts.agent.config import Config
from contracts.agent.names import DATASET_DEVICES
from infra.components.capacity.agent_store import AgentStore
from infra.components.capacity.launch_options import metadata_options, root_volume, tagged
from infra.schema.reservation import CapacityBlock
from infra.schema.work import Dataset
from infra.scope import Scope
from userdata.render import SCRIPT, BootSettings, render

_ROOT_DEVICE: Final = "/dev/sda1"
"""Of Ubuntu images."""

_OF_USE: Final = {"state": "completed", "encrypted": True, "tier": "standard"}
"""What a dataset's snapshot must be."""


@dataclass(frozen=True)
class LaunchTemplateArgs:
    """``image_id`` as EC2 takes it; ``agent`` is the node agent's configuration.

    Each instance gets a volume of each of ``datasets``. ``instance_tags`` are for instances alone, not for
    their volumes. With a ``block`` it starts instances there and nowhere else.
    """

    scope: Scope
    group: str
    side: str
    image_id: pulumi.Input[str]
    root_volume_gib: int
    profile_arn: pulumi.Input[str]
    security_group_ids: Sequence[pulumi.Input[str]]
    store: AgentStore
    cloudwatch_parameter: str
    agent: pulumi.Input[Config]
    datasets: Sequence[Dataset] = ()
    instance_tags: Mapping[str, str] = field(default_factory=dict)
    block: CapacityBlock | None = None


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
        boot_data = pulumi.Output.all(bucket=args.store.bucket, agent=args.agent).apply(
            lambda known: _boot_data(args, known["bucket"], known["agent"])
        )
        template = aws.ec2.LaunchTemplate(
            name,
            description=boot_data.apply(lambda known: f"{args.side} instances of {args.group}. {known[1]}"),
            image_id=args.image_id,
            iam_instance_profile=aws.ec2.LaunchTemplateIamInstanceProfileArgs(arn=args.profile_arn),
            vpc_security_group_ids=list(args.security_group_ids),
            # The node agent learns the name of its Auto Scaling group from its tags.
            metadata_options=metadata_options(with_tags=True),
            block_device_mappings=[
                root_volume(args.scope, _ROOT_DEVICE, args.root_volume_gib),
                *_dataset_mappings(args.scope, args.datasets),
            ],
            # Neither the provider's default tags nor the group's tags reach volumes and network interfaces.
            tag_specifications=[
                *tagged({**tags, **args.instance_tags}, ("instance",)),
                *tagged(tags, ("volume", "network-interface")),
            ],
            **(_into(args.block) if args.block else {}),
            user_data=boot_data.apply(lambda known: known[0]),
            update_default_version=True,
            tags=tags,
            # 30,000 characters of base64, twice: the description says which part of it is another.
            opts=pulumi.ResourceOptions(parent=self, hide_diffs=["userData"]),
        )
        self.id = template.id
        # `$Latest` would hide a new version from a group: no diff, no effect on a later refresh.
        self.version = template.latest_version.apply(str)
        self.register_outputs({"id": self.id, "version": self.version})


def _into(block: CapacityBlock) -> dict[str, Any]:
    """Return what starts instances in a Capacity Block.

    Source: EC2 Auto Scaling guide, "Use Capacity Blocks for machine learning workloads".
    """
    return {
        "instance_type": block.instance_type,
        "instance_market_options": aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(
            market_type="capacity-block"
        ),
        "capacity_reservation_specification": aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
            capacity_reservation_target=aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
                capacity_reservation_id=block.reservation
            )
        ),
    }


@dataclass(frozen=True)
class Launchable:
    """A launch template and the instance types that its image boots, the first choice first."""

    template: LaunchTemplate
    types: tuple[str, ...]


def looked_up_at_launch(image: str) -> str:
    """Return an image for an Auto Scaling group, which reads a parameter at each launch.

    Not where a warm pool or instance requirements may stand: AWS refuses it there (Auto Scaling guide, "Use
    AWS Systems Manager parameters instead of AMI IDs in launch templates", limitations).
    """
    return f"resolve:ssm:{image}" if image.startswith("/") else image


def looked_up_at_preview(scope: Scope, image: str) -> pulumi.Input[str]:
    """Return an image as an AMI id, which is all that a fleet takes (EC2's API, ``ImageId`` of fleets)."""
    if not image.startswith("/"):
        return image
    value: pulumi.Output[str] = aws.ssm.get_parameter_output(name=image, opts=scope.asking).insecure_value
    return value


def _dataset_mappings(
    scope: Scope,
    datasets: Sequence[Dataset],
) -> Iterator[aws.ec2.LaunchTemplateBlockDeviceMappingArgs]:
    """A volume of each dataset, made in the zone where the instance is and deleted with it."""
    for dataset, device in zip(datasets, DATASET_DEVICES, strict=False):
        yield aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
            device_name=device,
            ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                # No `encrypted`: EC2 takes it for blank volumes only, others are as their snapshot is,
                # under its key.
                snapshot_id=_encrypted(scope, dataset.snapshot),
                volume_type="gp3",
                throughput=dataset.throughput_mib,
                volume_initialization_rate=dataset.initialization_rate_mib,
                delete_on_termination="true",
            ),
        )


def _encrypted(scope: Scope, snapshot: str) -> pulumi.Output[str]:
    return usable_snapshot(scope, snapshot).apply(lambda _: snapshot)


def usable_snapshot(scope: Scope, snapshot: str) -> pulumi.Output[aws.ebs.GetSnapshotResult]:
    """Return what AWS knows of a snapshot that is there and of use: a launch would find out too late."""

    def check(found: aws.ebs.GetSnapshotResult) -> aws.ebs.GetSnapshotResult:
        given = {"state": found.state, "encrypted": found.encrypted, "tier": found.storage_tier}
        if given != _OF_USE:
            raise pulumi.RunError(f"dataset {snapshot} is {given}, allowed: {_OF_USE}")
        return found

    looked_up = aws.ebs.get_snapshot_output(snapshot_ids=[snapshot], opts=scope.asking)
    checked: pulumi.Output[aws.ebs.GetSnapshotResult] = looked_up.apply(check)
    return checked


def _boot_data(args: LaunchTemplateArgs, bucket: str, agent: Config) -> tuple[str, str]:
    """Return the boot data, in base64, and what tells its parts from another version's."""
    archive = args.store.archive
    text = render(BootSettings(agent, bucket, archive.key, archive.sha256, args.cloudwatch_parameter))
    told = codec.dump(agent)
    parts = {"boot.sh": SCRIPT.read_bytes(), "agent": archive.sha256.encode()}
    parts |= {
        key: json.dumps(told[key]).encode() for key in sorted(told) if isinstance(told[key], dict | list)
    }
    marks = ", ".join(f"{name} {hashlib.sha256(part).hexdigest()[:8]}" for name, part in parts.items())
    return base64.b64encode(text.encode()).decode(), f"Boot data: {marks}"
