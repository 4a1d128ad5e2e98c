"""A Spot Fleet as the primary side of a capacity group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.components.capacity import overrides
from infra.components.capacity.launch_template import Launchable
from infra.iam import aws_service_statements
from infra.iam.statement import document
from infra.schema.capacity import Capacity
from infra.scope import Scope

CAPACITIES: Final = ("targetCapacity", "onDemandTargetCapacity")
"""The controller moves both, and together: raising the target alone would raise the spot share alone, and
raising the on-demand share alone would shrink it. A changed base reaches the fleet through the controller."""

OWNED_BY_CONTROLLER: Final = (*CAPACITIES, "excessCapacityTerminationPolicy")
"""It repeats the policy with each capacity, in the API's spelling, which is not the provider's."""

_TAGGING_POLICY: Final = "iam::aws:policy/service-role/AmazonEC2SpotFleetTaggingRole"


@dataclass(frozen=True)
class SpotFleetArgs:
    """``instance_role_arn`` is the only role that the fleet may hand to instances."""

    scope: Scope
    group: str
    capacity: Capacity
    launchables: Sequence[Launchable]
    subnet_ids: Sequence[pulumi.Input[str]]
    instance_role_arn: pulumi.Input[str]
    ready_after: Sequence[pulumi.Resource] = field(default_factory=list)


class SpotFleet(pulumi.ComponentResource):
    """Produces: the fleet's role with AWS's tagging policy and one that narrows it, and the fleet.

    A fleet of type ``maintain`` starts empty and is filled by the controller. One of type ``request`` asks
    for its capacity once; to change its capacity is to ask anew.
    """

    id: pulumi.Output[str]

    def __init__(self, name: str, args: SpotFleetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the fleet."""
        super().__init__("gpu-spot:infra:SpotFleet", name, None, opts)
        self._args = args
        capacity, tags = args.capacity, args.scope.tags(name, group=args.group, side="primary")
        role, permissions = self._role()
        kept = capacity.is_kept
        fleet = aws.ec2.SpotFleetRequest(
            name,
            iam_fleet_role=role.arn,
            fleet_type=capacity.fleet_type,
            target_capacity=0 if kept else capacity.target,
            on_demand_target_capacity=0 if kept else capacity.on_demand_base,
            on_demand_allocation_strategy="lowestPrice" if capacity.instance_requirements else "prioritized",
            allocation_strategy=overrides.FLEET_STRATEGIES[capacity.allocation_strategy],
            spot_price=str(capacity.max_price) if capacity.max_price is not None else None,
            launch_template_configs=overrides.of_fleet(capacity, args.launchables, args.subnet_ids),
            instance_interruption_behaviour="terminate",
            # The controller chooses who goes: a lowered target alone ends nothing.
            excess_capacity_termination_policy="NoTermination" if kept else None,
            replace_unhealthy_instances=kept,
            terminate_instances_on_delete="true",
            wait_for_fulfillment=False,
            # Said although empty or default: left out, the provider reads them back as changes that replace.
            instance_pools_to_use_count=1,
            load_balancers=[],
            target_group_arns=[],
            tags=tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*permissions, *args.ready_after],
                ignore_changes=list(OWNED_BY_CONTROLLER) if kept else None,
                replace_on_changes=None if kept else list(CAPACITIES),
            ),
        )
        self.id = fleet.id
        self.register_outputs({"id": self.id})

    def _role(self) -> tuple[aws.iam.Role, list[pulumi.Resource]]:
        args, child = self._args, pulumi.ResourceOptions(parent=self)
        name = args.scope.name(args.group, "fleet")
        role = aws.iam.Role(
            name,
            assume_role_policy=document(aws_service_statements.assumed_by_fleets(args.scope)),
            permissions_boundary=args.scope.permissions_boundary,
            tags=args.scope.tags(name, group=args.group),
            opts=child,
        )
        attachment = aws.iam.RolePolicyAttachment(
            name,
            role=role.name,
            policy_arn=pulumi.Output.concat("arn:", args.scope.partition, ":", _TAGGING_POLICY),
            opts=child,
        )
        narrowed = aws.iam.RolePolicy(
            name,
            role=role.name,
            policy=document(aws_service_statements.fleet(args.instance_role_arn)),
            opts=child,
        )
        return role, [attachment, narrowed]
