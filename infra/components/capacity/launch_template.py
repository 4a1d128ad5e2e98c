"""The launch template of a primary or fallback group."""

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
from infra.catalogue.network_interfaces import NetworkInterface
from infra.components.capacity.agent_store import AgentStore
from infra.components.capacity.launch_options import metadata_options, root_volume, tag_specifications
from infra.schema.reservation import CapacityBlock
from infra.schema.work import Dataset
from infra.scope import Scope
from userdata.render import SCRIPT, BootSettings, render

_ROOT_DEVICE: Final = "/dev/sda1"
"""Root device of Ubuntu images."""

_USABLE_SNAPSHOT: Final = {"state": "completed", "encrypted": True, "tier": "standard"}
"""Required state of a dataset's snapshot."""


@dataclass(frozen=True)
class LaunchTemplateArgs:
    """Arguments of ``LaunchTemplate``.

    Attributes:
        group_role: ``primary`` or ``fallback``.
        image_id: An AMI id, or ``resolve:ssm:`` and a parameter.
        agent: The node agent's configuration.
        datasets: Each instance gets a volume of each.
        instance_tags: Additional tags for instances, not for their volumes.
        block: A Capacity Block; instances are launched only in it.
        placement_group: The name of a placement group for all instances.
        interfaces: The instances' network interfaces, the primary one first; empty: one, as AWS makes it.
    """

    scope: Scope
    group: str
    group_role: str
    image_id: pulumi.Input[str]
    root_volume_gib: int
    root_volume_throughput_mib: int | None
    profile_arn: pulumi.Input[str]
    security_group_ids: Sequence[pulumi.Input[str]]
    store: AgentStore
    cloudwatch_parameter: str
    agent: pulumi.Input[Config]
    datasets: Sequence[Dataset] = ()
    instance_tags: Mapping[str, str] = field(default_factory=dict)
    block: CapacityBlock | None = None
    placement_group: pulumi.Input[str] | None = None
    interfaces: Sequence[NetworkInterface] = ()


class LaunchTemplate(pulumi.ComponentResource):
    """A launch template with a GPU image, IMDSv2 only, encrypted root volume, tags and user data."""

    id: pulumi.Output[str]
    version: pulumi.Output[str]

    def __init__(
        self, name: str, args: LaunchTemplateArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the template."""
        super().__init__("gpu-spot:infra:LaunchTemplate", name, None, opts)
        tags = args.scope.tags(name, group=args.group, group_role=args.group_role)
        boot_data = pulumi.Output.all(bucket=args.store.bucket, agent=args.agent).apply(
            lambda outputs: render_boot_data(args.store, args.cloudwatch_parameter, **outputs)
        )
        template = aws.ec2.LaunchTemplate(
            name,
            description=boot_data.apply(
                lambda data_and_hashes: f"{args.group_role} instances of {args.group}. {data_and_hashes[1]}"
            ),
            image_id=args.image_id,
            iam_instance_profile=aws.ec2.LaunchTemplateIamInstanceProfileArgs(arn=args.profile_arn),
            **_network_options(args),
            # The node agent reads the name of its Auto Scaling group from the tags.
            metadata_options=metadata_options(with_tags=True),
            block_device_mappings=[
                root_volume(args.scope, _ROOT_DEVICE, args.root_volume_gib, args.root_volume_throughput_mib),
                *_dataset_mappings(args.scope, args.datasets),
            ],
            # Neither the provider's default tags nor the group's tags reach volumes and network interfaces. A
            # tag for Spot requests would fail the launches of On-Demand instances, which have none.
            # Source: EC2 API reference, ``LaunchTemplateTagSpecificationRequest``.
            tag_specifications=[
                *tag_specifications({**tags, **args.instance_tags}, ("instance",)),
                *tag_specifications(tags, ("volume", "network-interface")),
            ],
            **(_capacity_block_options(args.block) if args.block else {}),
            user_data=boot_data.apply(lambda data_and_hashes: data_and_hashes[0]),
            update_default_version=True,
            tags=tags,
            # A diff would show 30,000 characters of base64 twice; the description has a hash of each part.
            opts=pulumi.ResourceOptions(parent=self, hide_diffs=["userData"]),
        )
        self.id = template.id
        # With `$Latest` a group would show no diff for a new version.
        self.version = template.latest_version.apply(str)
        self.register_outputs({"id": self.id, "version": self.version})


def _network_options(args: LaunchTemplateArgs) -> dict[str, Any]:
    """Return security groups, interfaces and placement.

    With interfaces the security groups are theirs: EC2 refuses both (AWS PCS user guide, "Create or update an
    EC2 launch template"). Their subnet is the group's, and they are deleted with the instance, as in the
    example of the EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances with multiple network
    cards".
    """
    groups = list(args.security_group_ids)
    options: dict[str, Any] = {"vpc_security_group_ids": groups}
    if args.interfaces:
        options = {
            "network_interfaces": [
                aws.ec2.LaunchTemplateNetworkInterfaceArgs(
                    network_card_index=interface.card,
                    device_index=interface.device,
                    interface_type=interface.type,
                    security_groups=groups,
                    delete_on_termination="true",
                )
                for interface in args.interfaces
            ]
        }
    if args.placement_group is not None:
        options["placement"] = aws.ec2.LaunchTemplatePlacementArgs(group_name=args.placement_group)
    return options


def _capacity_block_options(block: CapacityBlock) -> dict[str, Any]:
    """Return the options that launch instances in a Capacity Block.

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
    """A launch template and the instance types that its image boots, in order of preference."""

    template: LaunchTemplate
    types: tuple[str, ...]


def resolve_ami_at_launch(image: str) -> str:
    """Return an image whose parameter an Auto Scaling group resolves at each launch.

    AWS rejects this with a warm pool or instance requirements. Source: Auto Scaling guide, "Use AWS Systems
    Manager parameters instead of AMI IDs in launch templates", limitations.
    """
    return f"resolve:ssm:{image}" if image.startswith("/") else image


def resolve_ami_at_preview(scope: Scope, image: str) -> pulumi.Input[str]:
    """Return an AMI id, which is all that a fleet accepts (EC2 API, ``ImageId`` of fleets)."""
    if not image.startswith("/"):
        return image
    value: pulumi.Output[str] = aws.ssm.get_parameter_output(
        name=image, opts=scope.invoke_options
    ).insecure_value
    return value


def _dataset_mappings(
    scope: Scope, datasets: Sequence[Dataset]
) -> Iterator[aws.ec2.LaunchTemplateBlockDeviceMappingArgs]:
    """Yield a volume for each dataset, created in the instance's zone and deleted with it."""
    for dataset, device in zip(datasets, DATASET_DEVICES, strict=False):
        yield aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
            device_name=device,
            ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                # No `encrypted`: EC2 accepts it for blank volumes only; others inherit it and the key from
                # their snapshot.
                snapshot_id=_checked_snapshot(scope, dataset.snapshot),
                volume_type="gp3",
                throughput=dataset.throughput_mib,
                volume_initialization_rate=dataset.initialization_rate_mib,
                delete_on_termination="true",
            ),
        )


def _checked_snapshot(scope: Scope, snapshot: str) -> pulumi.Output[str]:
    return look_up_snapshot(scope, snapshot).apply(lambda _: snapshot)


def look_up_snapshot(scope: Scope, snapshot: str) -> pulumi.Output[aws.ebs.GetSnapshotResult]:
    """Look up a snapshot and check that a launch can use it; raises ``pulumi.RunError`` at preview."""

    def check(snapshot_result: aws.ebs.GetSnapshotResult) -> aws.ebs.GetSnapshotResult:
        state = {
            "state": snapshot_result.state,
            "encrypted": snapshot_result.encrypted,
            "tier": snapshot_result.storage_tier,
        }
        if state != _USABLE_SNAPSHOT:
            raise pulumi.RunError(
                f"the dataset's snapshot {snapshot} must be {_USABLE_SNAPSHOT}, but is {state}"
            )
        return snapshot_result

    result = aws.ebs.get_snapshot_output(snapshot_ids=[snapshot], opts=scope.invoke_options)
    checked: pulumi.Output[aws.ebs.GetSnapshotResult] = result.apply(check)
    return checked


def render_boot_data(
    store: AgentStore, cloudwatch_parameter: str, bucket: str, agent: Config, packages: Sequence[str] = ()
) -> tuple[str, str]:
    """Return the user data in base64, and a text with the hash of each of its parts.

    ``packages`` are installed from the repositories of the image before the agent starts.
    """
    archive = store.archive
    settings = BootSettings(
        agent, bucket, archive.key, archive.sha256, cloudwatch_parameter, packages=tuple(packages)
    )
    agent_config = codec.dump(agent)
    parts = {"boot.sh": SCRIPT.read_bytes(), "agent": archive.sha256.encode()}
    parts |= {
        key: json.dumps(agent_config[key]).encode()
        for key in sorted(agent_config)
        if isinstance(agent_config[key], dict | list)
    }
    hashes = ", ".join(f"{name} {hashlib.sha256(part).hexdigest()[:8]}" for name, part in parts.items())
    return base64.b64encode(render(settings).encode()).decode(), f"Boot data: {hashes}"
