"""A capacity group and all that its instances need, whatever the kind of its entry."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from contracts.agent import config as agent
from contracts.agent.config import GroupSide
from contracts.group.config import GroupConfig
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
    looked_up_at_launch,
    looked_up_at_preview,
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
    """What a kind says of the group of one of its entries.

    ``work`` are the fields of the agent's configuration that the kind fills. ``tags`` are of instances,
    which have ``security_groups`` beside the network's and start after ``ready_after``; the others as in
    ``CapacityGroupArgs``.
    """

    entry: GroupEntry
    access: InstanceAccess
    work: pulumi.Output[dict[str, Any]]
    config: GroupConfig
    block: CapacityBlock | None = None
    follows_volume: bool = False
    scales: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    security_groups: Sequence[pulumi.Input[str]] = ()
    ready_after: Sequence[pulumi.Resource] = ()


def capacity_group(group: EntryGroup, foundation: Foundation) -> CapacityGroup:
    """Declare an entry's capacity group."""
    scope, capacity, name = foundation.scope, group.entry.capacity, group.entry.name
    telemetry = Telemetry(
        scope.name(name, "telemetry"),
        TelemetryArgs(scope, name, foundation.log_retention_days, capacity.is_nvidia),
        scope.below,
    )
    access = dataclasses.replace(
        group.access,
        log_group=telemetry.log_group_arn,
        cloudwatch_parameter=scope.arn("ssm", f"parameter{telemetry.parameter_name}"),
    )
    identity = InstanceIdentity(
        scope.name(name, "instance"), InstanceIdentityArgs(scope, name, access), scope.below
    )

    def launchables(side: GroupSide) -> list[Launchable]:
        return _launchables(group, side, foundation, identity, telemetry)

    return CapacityGroup(
        scope.name(name),
        CapacityGroupArgs(
            scope=scope,
            group=name,
            capacity=capacity,
            primary=launchables("primary"),
            fallback=launchables("fallback") if capacity.fallback.enabled else [],
            subnet_ids=foundation.network.subnet_ids,
            instance_role_arn=identity.role_arn,
            config=group.config,
            block=group.block,
            follows_volume=group.follows_volume,
            scales=group.scales,
            # Warm instances start with the group: without a way out and permissions they could not report.
            ready_after=[foundation.network, identity, telemetry, *group.ready_after],
        ),
        scope.below,
    )


def _launchables(
    group: EntryGroup,
    side: GroupSide,
    foundation: Foundation,
    identity: InstanceIdentity,
    telemetry: Telemetry,
) -> list[Launchable]:
    scope, entry = foundation.scope, group.entry
    found: list[Launchable] = []
    image_id = _image_lookup(scope, entry.capacity, side)
    started = entry.fallback_capacity if side == "fallback" else entry.capacity
    for image, types in started.images.items():
        # The first keeps the plain name: a second image, for some family, replaces no template.
        family = [types[0].partition(".")[0]] if found else []
        template = LaunchTemplate(
            scope.name(entry.name, side, *family),
            LaunchTemplateArgs(
                scope=scope,
                group=entry.name,
                side=side,
                image_id=image_id(image),
                root_volume_gib=entry.capacity.root_volume_gib,
                profile_arn=identity.profile_arn,
                security_group_ids=[*foundation.network.security_group_ids, *group.security_groups],
                store=foundation.store,
                cloudwatch_parameter=telemetry.parameter_name,
                agent=_agent(group, side, foundation, telemetry),
                datasets=entry.datasets,
                instance_tags=group.tags,
                block=group.block if side == "fallback" else None,
            ),
            scope.below,
        )
        found.append(Launchable(template, types))
    return found


def _image_lookup(scope: Scope, capacity: Capacity, side: GroupSide) -> Callable[[str], pulumi.Input[str]]:
    """Return how an image is looked up: as late as AWS allows.

    For the fallback always at preview: a warm pool that is taken out of the stack file is still there when
    the new template arrives, because the provider updates a group before its pool.
    """
    lists_types = not capacity.is_fleet and capacity.instance_requirements is None
    if side == "primary" and lists_types:
        return looked_up_at_launch
    return lambda image: looked_up_at_preview(scope, image)


def _agent(
    group: EntryGroup, side: GroupSide, foundation: Foundation, telemetry: Telemetry
) -> pulumi.Output[agent.Config]:
    """Return the node agent's configuration on one side, once AWS has named what stands in it."""
    hooks = None
    if side == "fallback" or not group.entry.capacity.is_fleet:
        launch = LAUNCH_HOOK if side == "fallback" else ""
        hooks = agent.Hooks(launch=launch, terminate=DRAIN_HOOK, terminate_seconds=DRAIN_HOOK_SECONDS)
    scope = foundation.scope
    place = agent_config.InstancePlace(scope.region, scope.stack, side, hooks, telemetry.log_group_name)
    registry = foundation.state.registry.name
    return pulumi.Output.all(registry, group.work).apply(
        lambda known: agent_config.build(group.entry, place, *known)
    )
