"""One service: the identity of its instances, the templates that start them, the group that holds them."""

from __future__ import annotations

from collections.abc import Callable

import pulumi

from infra.components.capacity_group import LAUNCH_HOOK, CapacityGroup, CapacityGroupArgs
from infra.components.identity import InstanceIdentity, InstanceIdentityArgs
from infra.components.launch_template import (
    Launchable,
    LaunchTemplate,
    LaunchTemplateArgs,
    looked_up_at_launch,
    looked_up_at_preview,
)
from infra.components.monitoring import agent_parameter
from infra.components.network import Network
from infra.components.state import State
from infra.components.storage import Storage
from infra.schema import Service
from infra.scope import Scope
from infra.statements import InstanceAccess


def capacity_group(
    service: Service, scope: Scope, network: Network, state: State, storage: Storage
) -> CapacityGroup:
    """Declare a service's capacity group and all that its instances need."""
    capacity = service.capacity
    identity = InstanceIdentity(
        scope.name(service.name, "instance"),
        InstanceIdentityArgs(scope, service.name, _access(service.name, scope, state, storage)),
    )

    def launchables(
        side: str, launch_hook: str, image_id: Callable[[str], pulumi.Input[str]]
    ) -> list[Launchable]:
        made: list[Launchable] = []
        for image, types in capacity.images.items():
            # The first keeps the plain name: a second image, for some family, replaces no template.
            family = [types[0].partition(".")[0]] if made else []
            template = LaunchTemplate(
                scope.name(service.name, side, *family),
                LaunchTemplateArgs(
                    scope=scope,
                    group=service.name,
                    side=side,
                    image_id=image_id(image),
                    root_volume_gib=capacity.root_volume_gib,
                    slots=service.slots_per_instance,
                    launch_hook=launch_hook,
                    profile_arn=identity.profile_arn,
                    security_group_id=network.worker_security_group_id,
                    registry_table=state.registry.name,
                ),
            )
            made.append(Launchable(template, types))
        return made

    is_fleet = capacity.kind == "spot-fleet"
    has_fallback = capacity.fallback.enabled
    return CapacityGroup(
        scope.name(service.name),
        CapacityGroupArgs(
            scope=scope,
            group=service.name,
            capacity=capacity,
            primary=launchables("primary", "", looked_up_at_preview if is_fleet else looked_up_at_launch),
            fallback=launchables("fallback", LAUNCH_HOOK, looked_up_at_launch) if has_fallback else [],
            subnet_ids=network.private_subnet_ids,
            instance_role_arn=identity.role_arn,
            slots=service.slots_per_instance,
            drain_seconds=service.drain_seconds,
            # Warm instances start with the group: without a way out and permissions they could not report.
            ready_after=[network, identity],
        ),
    )


def _access(group: str, scope: Scope, state: State, storage: Storage) -> InstanceAccess:
    files = storage.file_system
    return InstanceAccess(
        registry=state.registry.arn,
        agent_parameter=scope.arn("ssm", f"parameter{agent_parameter(scope.stack, group)}"),
        file_system=files.arn if files else None,
        access_points=list(files.access_point_arns.values()) if files else (),
        buckets=[bucket.arn for bucket in storage.buckets.values()],
        repositories=[repository.arn for repository in storage.repositories.values()],
    )
