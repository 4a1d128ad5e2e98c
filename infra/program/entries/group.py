"""The capacity group of an entry and the resources of its instances, for all kinds of entries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from contracts.agent import config as agent
from contracts.agent.config import GroupRoleName
from contracts.group.config import GroupConfig
from infra.catalogue.network_interfaces import efa_interfaces
from infra.components.capacity.capacity_group import (
    DRAIN_HOOK,
    DRAIN_HOOK_SECONDS,
    LAUNCH_HOOK,
    CapacityGroup,
    CapacityGroupArgs,
)
from infra.components.capacity.launch_template import (
    Launchable,
    LaunchTemplate,
    LaunchTemplateArgs,
    resolve_ami_at_launch,
    resolve_ami_at_preview,
)
from infra.components.identity.identity import InstanceIdentity, InstanceIdentityArgs
from infra.components.monitoring.telemetry import Telemetry, TelemetryArgs
from infra.iam.instance_statements import InstanceAccess
from infra.program import agent_config
from infra.program.foundation import Foundation
from infra.schema import Capacity
from infra.schema.reservation import CapacityBlock
from infra.schema.work import GroupEntry
from infra.scope import Scope


@dataclass(frozen=True)
class EntryGroup:
    """The part of a group that depends on the kind of its entry.

    Attributes:
        work: fields of the node agent's configuration.
        tags: tags of the instances.
        security_groups: security groups of the instances in addition to those of the network.
        depends_on: resources that must exist before instances start.
        zone: the only zone of the instances; None: all of the network's.
        placement_group: the name of the placement group of the instances.
        efa: whether the instances have all the EFA interfaces of their type, which all types share.

    The other fields are those of ``CapacityGroupArgs``.
    """

    entry: GroupEntry
    access: InstanceAccess
    work: pulumi.Output[dict[str, Any]]
    config: GroupConfig
    block: CapacityBlock | None = None
    follows_volume: bool = False
    is_scaled: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    security_groups: Sequence[pulumi.Input[str]] = ()
    depends_on: Sequence[pulumi.Resource] = ()
    zone: str | None = None
    placement_group: pulumi.Input[str] | None = None
    efa: bool = False


def declare_capacity_group(group: EntryGroup, foundation: Foundation) -> CapacityGroup:
    """Declare an entry's capacity group."""
    scope, capacity, name = foundation.scope, group.entry.capacity, group.entry.name
    telemetry = Telemetry(
        scope.name(name, "telemetry"),
        TelemetryArgs(scope, name, foundation.log_retention_days),
        scope.child_options,
    )
    access = dataclasses.replace(
        group.access,
        log_group=telemetry.log_group_arn,
        cloudwatch_parameter=scope.arn("ssm", f"parameter{telemetry.parameter_name}"),
    )
    identity = InstanceIdentity(
        scope.name(name, "instance"), InstanceIdentityArgs(scope, name, access), scope.child_options
    )

    def launchables(group_role: GroupRoleName) -> list[Launchable]:
        return _launchables(group, group_role, foundation, identity, telemetry)

    return CapacityGroup(
        scope.name(name),
        CapacityGroupArgs(
            scope=scope,
            group=name,
            capacity=capacity,
            primary=launchables("primary"),
            fallback=launchables("fallback") if capacity.fallback.enabled else [],
            subnet_ids=_subnets(group, foundation),
            instance_role_arn=identity.role_arn,
            config=group.config,
            block=group.block,
            follows_volume=group.follows_volume,
            scales=group.is_scaled,
            # Warm instances start with the group and need egress and permissions to report.
            depends_on=[foundation.network, identity, telemetry, *group.depends_on],
        ),
        scope.child_options,
    )


def _subnets(group: EntryGroup, foundation: Foundation) -> Mapping[str, pulumi.Output[str]]:
    subnets = foundation.network.subnet_ids
    return subnets if group.zone is None else {group.zone: subnets[group.zone]}


def _launchables(
    group: EntryGroup,
    group_role: GroupRoleName,
    foundation: Foundation,
    identity: InstanceIdentity,
    telemetry: Telemetry,
) -> list[Launchable]:
    scope, entry = foundation.scope, group.entry
    launchables: list[Launchable] = []
    image_id = _image_lookup(scope, entry.capacity, group_role)
    capacity = entry.fallback_capacity if group_role == "fallback" else entry.capacity
    for image, types in capacity.images.items():
        # The first template has no suffix, so that a second image does not replace it.
        family = [types[0].partition(".")[0]] if launchables else []
        template = LaunchTemplate(
            scope.name(entry.name, group_role, *family),
            LaunchTemplateArgs(
                scope=scope,
                group=entry.name,
                group_role=group_role,
                image_id=image_id(image),
                root_volume_gib=entry.capacity.root_volume_gib,
                root_volume_throughput_mib=entry.capacity.root_volume_throughput_mib,
                profile_arn=identity.profile_arn,
                security_group_ids=[*foundation.network.security_group_ids, *group.security_groups],
                store=foundation.store,
                cloudwatch_parameter=telemetry.parameter_name,
                agent=_agent(group, group_role, foundation, telemetry),
                datasets=entry.datasets,
                instance_tags=group.tags,
                block=group.block if group_role == "fallback" else None,
                placement_group=group.placement_group,
                interfaces=efa_interfaces(types[0]) if group.efa else (),
            ),
            scope.child_options,
        )
        launchables.append(Launchable(template, types))
    return launchables


def _image_lookup(
    scope: Scope, capacity: Capacity, group_role: GroupRoleName
) -> Callable[[str], pulumi.Input[str]]:
    """Return the lookup of machine images: at launch if AWS supports it for the group, else at preview.

    For the fallback always at preview: when a warm pool is removed from the stack file, it still exists while
    the launch template changes, because the provider updates a group before its pool.
    """
    lists_types = not capacity.is_fleet and capacity.instance_requirements is None
    if group_role == "primary" and lists_types:
        return resolve_ami_at_launch
    return lambda image: resolve_ami_at_preview(scope, image)


def _agent(
    group: EntryGroup, group_role: GroupRoleName, foundation: Foundation, telemetry: Telemetry
) -> pulumi.Output[agent.Config]:
    """Return the node agent's configuration for a group role, with the names that AWS assigns."""
    hooks = None
    if group_role == "fallback" or not group.entry.capacity.is_fleet:
        launch = LAUNCH_HOOK if group_role == "fallback" else ""
        hooks = agent.Hooks(launch=launch, terminate=DRAIN_HOOK, terminate_seconds=DRAIN_HOOK_SECONDS)
    scope = foundation.scope
    context = agent_config.InstanceContext(
        scope.region, scope.stack, group_role, hooks, telemetry.log_group_name
    )
    registry = foundation.state.registry.name
    return pulumi.Output.all(registry, group.work).apply(
        lambda outputs: agent_config.build(group.entry, context, *outputs)
    )
