"""GPU capacity: a primary side that is mostly spot, and the on-demand group behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.group import config as group_config
from contracts.group import control
from contracts.group.config import GroupConfig
from infra.catalogue.on_demand_prices import in_place_of, price
from infra.components.capacity import overrides, parameter
from infra.components.capacity.launch_template import Launchable
from infra.components.capacity.spot_fleet import SpotFleet, SpotFleetArgs
from infra.schema.capacity import Capacity
from infra.schema.reservation import CapacityBlock, Reservation
from infra.scope import Scope

LAUNCH_HOOK: Final = "instance-prepared"
_LAUNCH_HOOK_SECONDS: Final = 600
DRAIN_HOOK: Final = "work-ended"
DRAIN_HOOK_SECONDS: Final = 120
"""As long as a spot notice, so that work has one time to end in, whoever takes the instance."""

CAPACITY_OWNED_BY_CONTROLLER: Final = ("desiredCapacity",)
"""The controller moves it between two runs of the program, which must not move it back."""


@dataclass(frozen=True)
class CapacityGroupArgs:
    """``primary`` and ``fallback`` are what each side starts; no fallback where that is empty.

    ``subnet_ids`` are by zone, ``instance_role_arn`` is the role that instances take. ``config`` is what the
    controller must know, as far as the stack file says it; the component adds names and prices.
    ``follows_volume``: its work has a volume that is in one zone at a time. With a ``block`` the fallback is
    what was bought there, and no other on-demand. With ``scales`` the target is the scaler's.
    """

    scope: Scope
    group: str
    capacity: Capacity
    primary: Sequence[Launchable]
    fallback: Sequence[Launchable]
    subnet_ids: Mapping[str, pulumi.Output[str]]
    instance_role_arn: pulumi.Input[str]
    config: GroupConfig
    block: CapacityBlock | None = None
    follows_volume: bool = False
    scales: bool = False
    ready_after: list[pulumi.Resource] = field(default_factory=list)


class CapacityGroup(pulumi.ComponentResource):
    """One group of GPU instances that the controller keeps at its target.

    Produces: the primary side, an Auto Scaling group (mixed instances) or a Spot Fleet, the fallback Auto
    Scaling group (on-demand only, optionally with a warm pool), and the parameters ``config``, ``target``,
    ``control``, for a job ``finished``, for who prepares a dataset ``prepared``, which the controller
    reads. A fleet that only requests has neither fallback nor parameters.

    Both sides start empty and are filled by the controller. A new template version reaches instances as they
    are replaced: an instance refresh would be a second writer of capacity, and end work that runs well.
    """

    primary_name: pulumi.Output[str]
    fallback_name: pulumi.Output[str] | None
    is_kept: bool
    by_zone: bool

    def __init__(
        self, name: str, args: CapacityGroupArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the group."""
        super().__init__("gpu-spot:infra:CapacityGroup", name, None, opts)
        self._args = args
        self.primary_name = self._fleet().id if args.capacity.is_fleet else self._mixed_group().name
        self.fallback_name = self._fallback().name if args.fallback else None
        self.is_kept = args.capacity.is_kept
        # Where the volume is. LaunchInstances takes no group with a warm pool (Auto
        # Scaling guide, "Launch instances synchronously", limitations); a Capacity Block has but one zone.
        self.by_zone = bool(
            args.follows_volume and args.fallback and not args.block and not args.capacity.warm_instances
        )
        if self.is_kept:
            self._parameters()
        self.register_outputs({"primary": self.primary_name, "fallback": self.fallback_name})

    def _fleet(self) -> SpotFleet:
        args = self._args
        return SpotFleet(
            args.scope.name(args.group, "primary"),
            SpotFleetArgs(
                args.scope,
                args.group,
                args.capacity,
                args.primary,
                list(args.subnet_ids.values()),
                args.instance_role_arn,
                args.ready_after,
            ),
            pulumi.ResourceOptions(parent=self),
        )

    def _mixed_group(self) -> aws.autoscaling.Group:
        capacity = self._args.capacity
        return self._auto_scaling_group(
            "primary",
            self._args.primary,
            aws.autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs(
                on_demand_allocation_strategy=self._on_demand_strategy(),
                on_demand_base_capacity=capacity.on_demand_base,
                on_demand_percentage_above_base_capacity=100 - capacity.spot_percentage,
                spot_allocation_strategy=capacity.allocation_strategy,
                spot_max_price=str(capacity.max_price) if capacity.max_price is not None else None,
            ),
        )

    def _fallback(self) -> aws.autoscaling.Group:
        warm = self._args.capacity.warm_instances
        return self._auto_scaling_group(
            "fallback",
            self._args.fallback,
            aws.autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs(
                on_demand_allocation_strategy=self._on_demand_strategy(),
                on_demand_base_capacity=0,
                on_demand_percentage_above_base_capacity=100,
            ),
            # A warm instance is stopped once its launch ends: the hook holds it until it is prepared.
            # Declared with the group, because the pool begins to fill at once; also without a pool, because
            # a hook cannot be added this way later.
            launch_hooks=[
                aws.autoscaling.GroupInitialLifecycleHookArgs(
                    name=LAUNCH_HOOK,
                    lifecycle_transition="autoscaling:EC2_INSTANCE_LAUNCHING",
                    heartbeat_timeout=_LAUNCH_HOOK_SECONDS,
                    default_result="ABANDON",
                )
            ],
            # Without a bound it is max minus desired: everything. So many are with those in service, because
            # a pool of a fixed size launches a successor for whom it gives, and ends who comes back (Auto
            # Scaling guide, "Warm pools", core concepts). A job leaves its traces on an instance, and is not
            # to find another's. With a mixed instances policy a group may have a pool since November 2025
            # (AWS, What's New).
            warm_pool=aws.autoscaling.GroupWarmPoolArgs(
                pool_state="Stopped",
                min_size=0,
                max_group_prepared_capacity=warm,
                instance_reuse_policy=aws.autoscaling.GroupWarmPoolInstanceReusePolicyArgs(
                    reuse_on_scale_in=not self._args.config.run
                ),
            )
            if warm
            else None,
            reservation=self._args.capacity.fallback.reservation,
        )

    def _largest_size(self) -> int:
        """Return the bound of one side, which the controller keeps with the other's below the maximum.

        With weights it leaves room for what the last launch brought beyond: ahead of a release the desired
        capacity is raised to what stands, and AWS refuses to raise it above this.
        """
        capacity = self._args.capacity
        return capacity.maximum + (0 if capacity.unit == "instances" else max(capacity.weights.values()))

    def _on_demand_strategy(self) -> str:
        # Requirements have no order that could be followed.
        return "lowest-price" if self._args.capacity.instance_requirements else "prioritized"

    def _auto_scaling_group(
        self,
        side: str,
        launchables: Sequence[Launchable],
        distribution: aws.autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs,
        *,
        launch_hooks: Sequence[aws.autoscaling.GroupInitialLifecycleHookArgs] = (),
        warm_pool: aws.autoscaling.GroupWarmPoolArgs | None = None,
        reservation: Reservation | None = None,
    ) -> aws.autoscaling.Group:
        args = self._args
        name = args.scope.name(args.group, side)
        tags = args.scope.tags(name, group=args.group, side=side)
        block = args.block if side == "fallback" else None
        own = launchables[0].template
        return aws.autoscaling.Group(
            name,
            min_size=0,
            max_size=self._largest_size(),
            desired_capacity=0,
            vpc_zone_identifiers=[args.subnet_ids[block.zone]] if block else list(args.subnet_ids.values()),
            # A Capacity Block is one type in one zone, and its template says so.
            launch_template=aws.autoscaling.GroupLaunchTemplateArgs(id=own.id, version=own.version)
            if block
            else None,
            mixed_instances_policy=None
            if block
            else aws.autoscaling.GroupMixedInstancesPolicyArgs(
                instances_distribution=distribution,
                launch_template=aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateArgs(
                    launch_template_specification=aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs(
                        launch_template_id=own.id,
                        version=own.version,
                    ),
                    overrides=overrides.of_group(args.capacity, launchables),
                ),
            ),
            # It acts on recommendations, most of which are false, and ends before the successor's work is
            # ready. The controller covers each loss (docs/adr/0020).
            capacity_rebalance=False,
            # Nothing but the controller names who goes: a lowered capacity or bound ends nobody in service.
            # TerminateInstanceInAutoScalingGroup does, and who comes out of the warm pool is protected, too
            # (Auto Scaling guide, "Use instance scale-in protection").
            protect_from_scale_in=True,
            # Evening out zones ends instances that work. Launches still spread over the zones.
            suspended_processes=list(names.SUSPENDED_BY_US),
            initial_lifecycle_hooks=[
                *launch_hooks,
                # A scale-in gives no notice of its own: the hook is the time that work has to end.
                aws.autoscaling.GroupInitialLifecycleHookArgs(
                    name=DRAIN_HOOK,
                    lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
                    heartbeat_timeout=DRAIN_HOOK_SECONDS,
                    default_result="CONTINUE",
                ),
            ],
            warm_pool=warm_pool,
            capacity_reservation_specification=overrides.reserved_first(reservation),
            # Zones in balance would leave a reservation in one of them for another's on-demand.
            availability_zone_distribution=aws.autoscaling.GroupAvailabilityZoneDistributionArgs(
                capacity_distribution_strategy="reservations-then-balanced"
            )
            if reservation
            else None,
            health_check_type="EC2",
            # Whether AWS has capacity now is the controller's matter, not a failed deployment.
            wait_for_capacity_timeout="0",
            # `destroy` ends what still runs, warm pool included, instead of waiting for an empty group.
            force_delete=True,
            tags=[
                aws.autoscaling.GroupTagArgs(key=key, value=value, propagate_at_launch=True)
                for key, value in tags.items()
            ],
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=args.ready_after, ignore_changes=list(CAPACITY_OWNED_BY_CONTROLLER)
            ),
        )

    def _parameters(self) -> None:
        args, capacity = self._args, self._args.capacity
        sides = pulumi.Output.all(self.primary_name, self.fallback_name)
        self._parameter(
            names.PARAMETER_CONFIG,
            "What the controller must know",
            sides.apply(lambda known: group_config.dumps(self._config(*known))),
        )
        self._parameter(
            names.PARAMETER_TARGET,
            f"How many {args.capacity.unit} to keep up",
            str(capacity.target),
            owned_by_others=args.scales,
        )
        if args.config.run:
            self._parameter(names.PARAMETER_FINISHED, "The run that has ended", "none", owned_by_others=True)
        if args.config.prepared_by == args.group:
            self._parameter(
                names.PARAMETER_PREPARED, "The dataset that is there", "none", owned_by_others=True
            )
        self._parameter(names.PARAMETER_CONTROL, "Set by people", control.INITIAL, owned_by_others=True)

    def _config(self, primary: str, fallback: str | None) -> GroupConfig:
        """Return the configuration, complete; written after both sides, whose names stand in it.

        From then on every launch starts the run that it names.
        """
        return dataclasses.replace(
            self._args.config,
            primary=primary,
            fallback=fallback,
            zones=tuple(self._args.subnet_ids),
            on_demand_prices=self._on_demand_prices(),
            own_prices=self._own_prices(),
            by_zone=self.by_zone,
        )

    def _on_demand_prices(self) -> dict[str, float]:
        args, capacity = self._args, self._args.capacity
        if not (args.fallback or args.config.budget) or args.block:
            return {}
        in_order = capacity.instance_requirements is None
        return in_place_of(capacity.types, args.scope.region, capacity.weights, in_order=in_order)

    def _own_prices(self) -> dict[str, float]:
        """Return what each type costs on-demand, for a budget; the schema refuses those of no price."""
        args, region = self._args, self._args.scope.region
        prices = {kind: price(kind, region) for kind in args.capacity.types} if args.config.budget else {}
        return {kind: dollars for kind, dollars in prices.items() if dollars is not None}

    def _parameter(
        self, leaf: str, description: str, value: pulumi.Input[str], *, owned_by_others: bool = False
    ) -> None:
        args = self._args
        parameter.declare(
            args.scope, self, args.group, leaf, description, value, owned_by_others=owned_by_others
        )
