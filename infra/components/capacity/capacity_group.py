"""A capacity group: a primary group, mostly Spot, and an On-Demand fallback group."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.group import config as group_config
from contracts.group import control
from contracts.group.config import GroupConfig
from contracts.group.release_settings import MAX_BYTES
from contracts.jobs import run as job_run
from infra.catalogue.on_demand_prices import price, replacement_prices
from infra.components.capacity import overrides, parameter
from infra.components.capacity.launch_template import Launchable
from infra.components.capacity.spot_fleet import SpotFleet, SpotFleetArgs
from infra.schema.capacity import Capacity
from infra.schema.reservation import CapacityBlock, Reservation
from infra.scope import MIN_NAME_LIMIT, Scope, check_size

LAUNCH_HOOK: Final = "instance-prepared"
_LAUNCH_HOOK_SECONDS: Final = 600
DRAIN_HOOK: Final = "work-ended"
DRAIN_HOOK_SECONDS: Final = 120
"""As long as a Spot interruption notice: every termination leaves the work the same time to finish."""

_LAUNCH: Final = {
    "name": LAUNCH_HOOK,
    "lifecycle_transition": "autoscaling:EC2_INSTANCE_LAUNCHING",
    "heartbeat_timeout": _LAUNCH_HOOK_SECONDS,
    "default_result": "ABANDON",
}
_DRAIN: Final = {
    "name": DRAIN_HOOK,
    "lifecycle_transition": "autoscaling:EC2_INSTANCE_TERMINATING",
    "heartbeat_timeout": DRAIN_HOOK_SECONDS,
    "default_result": "CONTINUE",
}
"""Hooks of a group. A scale-in has no advance notice: the second gives the work time to finish.

Each is declared twice. The initial hook is there before the first launch, which a warm pool makes at once.
Another would replace the group (terraform-provider-aws, ``autoscaling/group.go``: ForceNew), so the group
ignores its changes. The resource of its own changes the same hook in place: ``PutLifecycleHook`` "creates or
updates" (Auto Scaling API reference).
"""

CAPACITY_OWNED_BY_CONTROLLER: Final = ("desiredCapacity",)
"""The controller sets it. Without ``ignore_changes`` the next ``pulumi up`` would reset it."""


@dataclass(frozen=True)
class CapacityGroupArgs:
    """Arguments of ``CapacityGroup``.

    Attributes:
        primary: Launch templates of the primary group, in order of preference.
        fallback: Launch templates of the fallback group; empty for no fallback.
        subnet_ids: Private subnets by availability zone.
        instance_role_arn: The only role that a Spot Fleet may pass to instances.
        config: The controller's configuration from the stack file; the component adds names and prices.
        block: A Capacity Block for the fallback, which then launches no other On-Demand instance.
        follows_volume: The work has an EBS volume, so its instance must be in the volume's zone.
        scales: The scaler writes the target.
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
    depends_on: list[pulumi.Resource] = field(default_factory=list)


class CapacityGroup(pulumi.ComponentResource):
    """A group of GPU instances that the controller keeps at its target.

    Declares the primary group (an Auto Scaling group with a mixed instances policy, or a Spot Fleet), the
    fallback Auto Scaling group (On-Demand, optionally with a warm pool), and the controller's parameters:
    ``config``, ``target``, ``control``, ``finished`` for a training job, ``prepared`` for the preparation of
    a dataset. A Spot Fleet of type ``request`` has neither a fallback nor parameters.

    Both groups are created empty; the controller fills them. Running instances keep their launch template
    version until they are replaced. There is no instance refresh: it would change capacity as well, and
    interrupt healthy work.
    """

    primary_name: pulumi.Output[str]
    fallback_name: pulumi.Output[str] | None
    is_managed: bool
    by_zone: bool
    spreads: bool

    def __init__(
        self, name: str, args: CapacityGroupArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the groups and parameters."""
        super().__init__("gpu-spot:infra:CapacityGroup", name, None, opts)
        self._args = args
        self.primary_name = self._spot_fleet().id if args.capacity.is_fleet else self._mixed_group().name
        self.fallback_name = self._fallback_group().name if args.fallback else None
        self.is_managed = args.capacity.is_managed
        # LaunchInstances launches in the volume's zone. It does not support warm pools (Auto Scaling guide,
        # "Launch instances synchronously", limitations); a Capacity Block is in one zone anyway.
        self.by_zone = bool(
            args.follows_volume and args.fallback and not args.block and not args.capacity.warm_instances
        )
        self.spreads = (
            self.is_managed and dataclasses.replace(args.config, zones=tuple(args.subnet_ids)).spreads
        )
        if self.is_managed:
            self._parameters()
        self.register_outputs({"primary": self.primary_name, "fallback": self.fallback_name})

    def _spot_fleet(self) -> SpotFleet:
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
                args.depends_on,
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
                spot_max_price=f"{capacity.max_price:f}" if capacity.max_price is not None else None,
            ),
        )

    def _fallback_group(self) -> aws.autoscaling.Group:
        return self._auto_scaling_group(
            "fallback",
            self._args.fallback,
            aws.autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs(
                on_demand_allocation_strategy=self._on_demand_strategy(),
                on_demand_base_capacity=0,
                on_demand_percentage_above_base_capacity=100,
            ),
            # Keeps a warm instance running until it is prepared; it is stopped when its launch completes.
            hooks=[_LAUNCH, _DRAIN],
            warm_pool=self._warm_pool(),
            reservation=self._args.capacity.fallback.reservation,
        )

    def _warm_pool(self) -> aws.autoscaling.GroupWarmPoolArgs | None:
        """Return the fallback's warm pool, None without one.

        The bound counts warm and in-service instances together. A pool of fixed size would launch a
        replacement for each instance it gives out and terminate each one that returns; without a bound it
        would hold the maximum size minus the desired capacity.
        Source: Auto Scaling guide, "Warm pools", core concepts. Warm pools support mixed instances policies
        since November 2025 (AWS, What's New).
        """
        warm_instances = self._args.capacity.warm_instances
        if not warm_instances:
            return None
        return aws.autoscaling.GroupWarmPoolArgs(
            pool_state="Stopped",
            min_size=0,
            max_group_prepared_capacity=warm_instances,
            instance_reuse_policy=aws.autoscaling.GroupWarmPoolInstanceReusePolicyArgs(
                # A training job leaves files on its instance, which the next job must not see.
                reuse_on_scale_in=not self._args.config.run
            ),
        )

    def _max_size(self) -> int:
        """Return the ``MaxSize`` of each group; the controller keeps both together within the maximum.

        Weighted launches may exceed the desired capacity by up to one weight. Before it terminates an
        instance, the controller raises the desired capacity to the running weight, and AWS rejects a value
        above ``MaxSize``.
        """
        capacity = self._args.capacity
        return capacity.maximum + (0 if capacity.unit == "instances" else max(capacity.weights.values()))

    def _on_demand_strategy(self) -> str:
        # Instance requirements have no order of preference.
        return "lowest-price" if self._args.capacity.instance_requirements else "prioritized"

    def _auto_scaling_group(
        self,
        group_role: str,
        launchables: Sequence[Launchable],
        distribution: aws.autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs,
        *,
        hooks: Sequence[Mapping[str, Any]] = (_DRAIN,),
        warm_pool: aws.autoscaling.GroupWarmPoolArgs | None = None,
        reservation: Reservation | None = None,
    ) -> aws.autoscaling.Group:
        args = self._args
        name = args.scope.name(args.group, group_role)
        tags = args.scope.tags(name, group=args.group, group_role=group_role)
        block = args.block if group_role == "fallback" else None
        template = launchables[0].template
        group = aws.autoscaling.Group(
            name,
            min_size=0,
            max_size=self._max_size(),
            desired_capacity=0,
            vpc_zone_identifiers=[args.subnet_ids[block.zone]] if block else list(args.subnet_ids.values()),
            # A Capacity Block has one instance type in one zone, both in its launch template.
            launch_template=aws.autoscaling.GroupLaunchTemplateArgs(id=template.id, version=template.version)
            if block
            else None,
            mixed_instances_policy=None
            if block
            else aws.autoscaling.GroupMixedInstancesPolicyArgs(
                instances_distribution=distribution,
                launch_template=aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateArgs(
                    launch_template_specification=aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs(
                        launch_template_id=template.id, version=template.version
                    ),
                    overrides=overrides.auto_scaling_overrides(args.capacity, launchables),
                ),
            ),
            # Capacity Rebalancing acts on recommendations, most of which no interruption follows, and
            # terminates the old instance before work on the new one is ready (docs/adr/0020).
            capacity_rebalance=False,
            # A lower desired capacity terminates no protected instance: the controller selects each one and
            # calls TerminateInstanceInAutoScalingGroup, which ignores the protection. Instances from the warm
            # pool are protected as well (Auto Scaling guide, "Use instance scale-in protection").
            protect_from_scale_in=True,
            # AZRebalance terminates working instances. Launches are spread over the zones without it.
            suspended_processes=list(names.SUSPENDED_BY_STACK),
            initial_lifecycle_hooks=[aws.autoscaling.GroupInitialLifecycleHookArgs(**hook) for hook in hooks],
            warm_pool=warm_pool,
            capacity_reservation_specification=overrides.reservation_first(reservation),
            # Balancing zones first would launch On-Demand in one zone while another has reserved capacity.
            availability_zone_distribution=aws.autoscaling.GroupAvailabilityZoneDistributionArgs(
                capacity_distribution_strategy="reservations-then-balanced"
            )
            if reservation
            else None,
            health_check_type="EC2",
            # A lack of capacity must not fail the deployment: the controller handles it.
            wait_for_capacity_timeout="0",
            # `pulumi destroy` terminates running and warm instances instead of waiting for an empty group.
            force_delete=True,
            tags=[
                aws.autoscaling.GroupTagArgs(key=key, value=value, propagate_at_launch=True)
                for key, value in tags.items()
            ],
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=args.depends_on,
                ignore_changes=[*CAPACITY_OWNED_BY_CONTROLLER, "initialLifecycleHooks"],
            ),
        )
        for hook in hooks:
            aws.autoscaling.LifecycleHook(
                f"{name}-{hook['name']}",
                autoscaling_group_name=group.name,
                **hook,
                opts=pulumi.ResourceOptions(parent=self),
            )
        return group

    def _parameters(self) -> None:
        args, capacity = self._args, self._args.capacity
        # With the longest names of groups: the first preview does not know them.
        longest, remedy = "n" * MIN_NAME_LIMIT, "list fewer onPremises.hosts or instanceTypes"
        size = len(self._config_text(longest, longest).encode())
        check_size(f"the configuration of {args.group!r}", size, MAX_BYTES, "bytes", remedy)
        group_names = pulumi.Output.all(self.primary_name, self.fallback_name)
        self._parameter(
            names.PARAMETER_CONFIG,
            "Configuration of the controller",
            group_names.apply(lambda primary_and_fallback: self._config_text(*primary_and_fallback)),
        )
        self._parameter(
            names.PARAMETER_TARGET,
            f"Target capacity in {args.capacity.unit}",
            str(capacity.target),
            is_initial_value=args.scales,
        )
        if args.config.run:
            self._parameter(names.PARAMETER_FINISHED, "The finished run", "none", is_initial_value=True)
        if args.config.runs is not None:
            for leaf in (*names.RUN_REQUESTS, names.PARAMETER_RUN):
                self._parameter(leaf, f"Newest {leaf}", job_run.INITIAL, is_initial_value=True)
        if args.config.prepared_by == args.group:
            self._parameter(names.PARAMETER_PREPARED, "The prepared dataset", "none", is_initial_value=True)
        self._parameter(
            names.PARAMETER_CONTROL, "Mode, set by operators", control.INITIAL, is_initial_value=True
        )

    def _config_text(self, primary: str, fallback: str | None) -> str:
        """Return the stored configuration with the names of both groups.

        The parameter is written after both groups exist; from then on every launch starts the run it names.
        """
        return group_config.dumps(self._config(primary, fallback))

    def _config(self, primary: str, fallback: str | None) -> GroupConfig:
        return dataclasses.replace(
            self._args.config,
            primary=primary,
            fallback=fallback,
            zones=tuple(self._args.subnet_ids),
            on_demand_prices=self._on_demand_prices(),
            own_prices=self._budget_prices(),
            by_zone=self.by_zone,
        )

    def _on_demand_prices(self) -> dict[str, float]:
        args, capacity = self._args, self._args.capacity
        if not (args.fallback or args.config.budget) or args.block:
            return {}
        in_order = capacity.instance_requirements is None
        return replacement_prices(capacity.types, args.scope.region, capacity.weights, in_order=in_order)

    def _budget_prices(self) -> dict[str, float]:
        """Return On-Demand prices by type for a budget; the schema rejects types without a known price."""
        args, region = self._args, self._args.scope.region
        prices = {kind: price(kind, region) for kind in args.capacity.types} if args.config.budget else {}
        return {kind: dollars for kind, dollars in prices.items() if dollars is not None}

    def _parameter(
        self, leaf: str, description: str, value: pulumi.Input[str], *, is_initial_value: bool = False
    ) -> None:
        args = self._args
        parameter.declare(
            args.scope, self, args.group, leaf, description, value, is_initial_value=is_initial_value
        )
