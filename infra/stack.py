"""One stack: settings in, components out."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra import accelerators
from infra.components.capacity_group import LAUNCH_HOOK, CapacityGroup, CapacityGroupArgs, Fallback
from infra.components.controller import Controller, ControllerArgs
from infra.components.identity import InstanceIdentity, InstanceIdentityArgs
from infra.components.launch_template import LaunchTemplate, LaunchTemplateArgs
from infra.components.network import Network, NetworkArgs
from infra.components.state import State, StateArgs
from infra.schema import Service
from infra.scope import Scope
from infra.settings import read_settings
from lambdas.core import names


def declare() -> None:
    """Declare everything that the running stack's settings ask for, and export what its user needs next."""
    settings = read_settings()
    scope = Scope(
        stack=pulumi.get_stack(),
        region=settings.region,
        account_id=aws.get_caller_identity_output().account_id,
        partition=aws.get_partition_output().partition,
        extra_tags=settings.tags,
    )
    network = Network(
        scope.name("network"),
        NetworkArgs(scope, settings.network.cidr, settings.network.zones, settings.network.egress),
    )
    state = State(scope.name("state"), StateArgs(scope))
    groups = {service.name: _capacity_group(service, scope, network, state) for service in settings.services}
    controller = Controller(
        scope.name("controller"),
        ControllerArgs(scope, state, settings.log_retention_days, ready_after=list(groups.values())),
    )
    _export(scope, network, state, groups, controller)


def _capacity_group(service: Service, scope: Scope, network: Network, state: State) -> CapacityGroup:
    capacity = service.capacity
    identity = InstanceIdentity(
        scope.name(service.name, "instance"), InstanceIdentityArgs(scope, service.name, state.registry.arn)
    )

    def template(side: str, launch_hook: str) -> LaunchTemplate:
        return LaunchTemplate(
            scope.name(service.name, side),
            LaunchTemplateArgs(
                scope=scope,
                group=service.name,
                side=side,
                ami=capacity.ami or _default_ami(service),
                root_volume_gib=capacity.root_volume_gib,
                slots=service.slots_per_instance,
                launch_hook=launch_hook,
                profile_arn=identity.profile_arn,
                security_group_id=network.worker_security_group_id,
                registry_table=state.registry.name,
            ),
        )

    fallback = capacity.fallback
    return CapacityGroup(
        scope.name(service.name),
        CapacityGroupArgs(
            scope=scope,
            group=service.name,
            kind=capacity.kind,
            template=template("primary", launch_hook=""),
            subnet_ids=network.private_subnet_ids,
            instance_types=capacity.instance_types,
            target=capacity.target,
            maximum=capacity.maximum,
            on_demand_base=capacity.on_demand_base,
            spot_percentage=capacity.spot_percentage,
            allocation_strategy=capacity.allocation_strategy,
            slots=service.slots_per_instance,
            drain_seconds=service.drain_seconds,
            policy=fallback.policy,
            knobs=fallback.knobs,
            fallback=Fallback(template("fallback", launch_hook=LAUNCH_HOOK), fallback.warm_instances)
            if fallback.enabled
            else None,
            max_price=str(capacity.max_price) if capacity.max_price is not None else None,
            # Warm instances start with the group: without a way out and permissions they could not report.
            ready_after=[network, identity],
        ),
    )


def _default_ami(service: Service) -> str:
    first = accelerators.lookup(service.capacity.instance_types[0])
    return accelerators.ami_parameter(first.family.architecture)


def _export(
    scope: Scope,
    network: Network,
    state: State,
    groups: dict[str, CapacityGroup],
    controller: Controller,
) -> None:
    pulumi.export("vpcId", network.vpc_id)
    pulumi.export("privateSubnetIds", network.private_subnet_ids)
    pulumi.export("memoryTable", state.memory.name)
    pulumi.export("registryTable", state.registry.name)
    pulumi.export("queueUrl", controller.wake_ups.queue_url)
    pulumi.export("deadLetterQueueUrl", controller.wake_ups.dead_letter_url)
    pulumi.export("controllerFunction", controller.function_name)
    pulumi.export("controllerLogGroup", controller.log_group_name)
    pulumi.export(
        "followDecisions",
        pulumi.Output.concat(
            "aws logs tail ", controller.log_group_name, " --follow --region ", scope.region
        ),
    )
    pulumi.export(
        "groups",
        {
            name: {
                "primary": group.primary_name,
                "fallback": group.fallback_name,
                "control": names.group_parameter(scope.stack, name, names.PARAMETER_CONTROL),
            }
            for name, group in groups.items()
        },
    )
