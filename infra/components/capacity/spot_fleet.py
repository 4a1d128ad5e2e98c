"""A Spot Fleet as the primary group of a capacity group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts.group.warm_pool import on_demand_share
from infra.components.capacity import overrides
from infra.components.capacity.launch_template import Launchable
from infra.components.identity.identity import declare_role
from infra.iam import aws_service_statements
from infra.iam.statement import document
from infra.schema.capacity import Capacity
from infra.scope import Scope

CAPACITIES: Final = ("targetCapacity", "onDemandTargetCapacity")
"""The controller sets both together: the target alone changes the Spot share, the On-Demand target alone
changes it inversely."""

OWNED_BY_CONTROLLER: Final = (*CAPACITIES, "excessCapacityTerminationPolicy")
"""The controller sends the policy with each capacity, in the API's spelling, not the provider's."""

_TAGGING_POLICY: Final = "iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole"


@dataclass(frozen=True)
class SpotFleetArgs:
    """``instance_role_arn`` is the only role that the fleet may pass to instances."""

    scope: Scope
    group: str
    capacity: Capacity
    launchables: Sequence[Launchable]
    subnet_ids: Sequence[pulumi.Input[str]]
    instance_role_arn: pulumi.Input[str]
    depends_on: Sequence[pulumi.Resource] = field(default_factory=list)


class SpotFleet(pulumi.ComponentResource):
    """A Spot Fleet and its role, which has AWS's tagging policy and one that restricts it.

    A fleet of type ``maintain`` is created empty and filled by the controller. A fleet of type ``request``
    requests its capacity once and is replaced to change it.
    """

    id: pulumi.Output[str]

    def __init__(self, name: str, args: SpotFleetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the fleet."""
        super().__init__("gpu-spot:infra:SpotFleet", name, None, opts)
        self._args = args
        capacity, tags = args.capacity, args.scope.tags(name, group=args.group, group_role="primary")
        role, permissions = self._role()
        is_managed = capacity.is_managed
        fleet = aws.ec2.SpotFleetRequest(
            name,
            iam_fleet_role=role.arn,
            fleet_type=capacity.fleet_type,
            target_capacity=0 if is_managed else capacity.target,
            on_demand_target_capacity=0 if is_managed else _on_demand_target(capacity),
            on_demand_allocation_strategy="lowestPrice" if capacity.instance_requirements else "prioritized",
            allocation_strategy=overrides.FLEET_STRATEGIES[capacity.allocation_strategy],
            spot_price=f"{capacity.max_price:f}" if capacity.max_price is not None else None,
            launch_template_configs=overrides.fleet_configs(capacity, args.launchables, args.subnet_ids),
            instance_interruption_behaviour="terminate",
            # The controller selects the instances to terminate; a lower target terminates none.
            excess_capacity_termination_policy="NoTermination" if is_managed else None,
            replace_unhealthy_instances=is_managed,
            terminate_instances_on_delete="true",
            wait_for_fulfillment=False,
            # Explicit defaults: the provider would read missing ones back as changes that replace the fleet.
            instance_pools_to_use_count=1,
            load_balancers=[],
            target_group_arns=[],
            tags=tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*permissions, *args.depends_on],
                ignore_changes=list(OWNED_BY_CONTROLLER) if is_managed else None,
                replace_on_changes=None if is_managed else list(CAPACITIES),
            ),
        )
        self.id = fleet.id
        self.register_outputs({"id": self.id})

    def _role(self) -> tuple[aws.iam.Role, list[pulumi.Resource]]:
        args, child = self._args, pulumi.ResourceOptions(parent=self)
        name = args.scope.name(args.group, "fleet")
        trust = aws_service_statements.assumed_by_fleets(args.scope)
        role = declare_role(args.scope, name, trust, child, args.group)
        attachment = aws.iam.RolePolicyAttachment(
            name,
            role=role.name,
            policy_arn=pulumi.Output.concat("arn:", args.scope.partition, ":", _TAGGING_POLICY),
            opts=child,
        )
        restriction = aws.iam.RolePolicy(
            name,
            role=role.name,
            policy=document(aws_service_statements.fleet(args.instance_role_arn)),
            opts=child,
        )
        return role, [attachment, restriction]


def _on_demand_target(capacity: Capacity) -> int:
    """Return the On-Demand part of the target, as an Auto Scaling group would divide it."""
    return on_demand_share(capacity.target, capacity.on_demand_base, capacity.spot_percentage)
