"""GPU capacity: a primary group that is mostly spot, and the on-demand group behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pulumi
import pulumi_aws as aws

from infra.components.launch_template import LaunchTemplate
from infra.scope import Scope
from lambdas.core import names

LAUNCH_HOOK: Final = "worker-started"
_LAUNCH_HOOK_SECONDS: Final = 600

CAPACITY_OWNED_BY_CONTROLLER: Final = ("desiredCapacity",)
"""The controller moves it between two runs of the program, which must not move it back."""


@dataclass(frozen=True)
class Fallback:
    """The on-demand side. ``warm_instances`` stand by, stopped."""

    template: LaunchTemplate
    warm_instances: int


@dataclass(frozen=True)
class CapacityGroupArgs:
    """Counts are instances. ``maximum`` bounds both sides together, ``slots`` are workers on an instance."""

    scope: Scope
    group: str
    kind: str
    template: LaunchTemplate
    subnet_ids: list[pulumi.Output[str]]
    instance_types: tuple[str, ...]
    target: int
    maximum: int
    on_demand_base: int
    spot_percentage: int
    allocation_strategy: str
    slots: int
    drain_seconds: int
    policy: str
    knobs: Mapping[str, float]
    fallback: Fallback | None
    max_price: str | None = None
    ready_after: list[pulumi.Resource] = field(default_factory=list)


class CapacityGroup(pulumi.ComponentResource):
    """One group of GPU instances that the controller keeps at its target.

    Produces: the primary Auto Scaling group (mixed instances), the fallback one (on-demand only, optionally
    with a warm pool), and the parameters ``config``, ``target`` and ``control`` that the controller reads.

    Both groups start empty and are filled by the controller. A new template version reaches instances as they
    are replaced: an instance refresh would be a second writer of capacity, and end work that runs well.
    """

    primary_name: pulumi.Output[str]
    fallback_name: pulumi.Output[str] | None

    def __init__(
        self, name: str, args: CapacityGroupArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the group."""
        super().__init__("gpu-spot:infra:CapacityGroup", name, None, opts)
        self._args = args
        primary = self._auto_scaling_group(
            "primary",
            args.template,
            aws.autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs(
                on_demand_allocation_strategy="prioritized",
                on_demand_base_capacity=args.on_demand_base,
                on_demand_percentage_above_base_capacity=100 - args.spot_percentage,
                spot_allocation_strategy=args.allocation_strategy,
                spot_max_price=args.max_price,
            ),
            capacity_rebalance=True,
        )
        self.primary_name = primary.name
        self.fallback_name = self._fallback(args.fallback).name if args.fallback else None
        self._parameters()
        self.register_outputs({"primary": self.primary_name, "fallback": self.fallback_name})

    def _fallback(self, fallback: Fallback) -> aws.autoscaling.Group:
        warm = fallback.warm_instances
        return self._auto_scaling_group(
            "fallback",
            fallback.template,
            aws.autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs(
                on_demand_allocation_strategy="prioritized",
                on_demand_base_capacity=0,
                on_demand_percentage_above_base_capacity=100,
            ),
            capacity_rebalance=False,
            # A warm instance is stopped once its launch ends: the hook holds it until the worker is set up.
            # Declared with the group, because the pool begins to fill at once; also without a pool, because
            # a hook cannot be added this way later.
            initial_lifecycle_hooks=[
                aws.autoscaling.GroupInitialLifecycleHookArgs(
                    name=LAUNCH_HOOK,
                    lifecycle_transition="autoscaling:EC2_INSTANCE_LAUNCHING",
                    heartbeat_timeout=_LAUNCH_HOOK_SECONDS,
                    default_result="ABANDON",
                )
            ],
            # Equal bounds give the pool a fixed size. Without them it is max minus desired: everything.
            warm_pool=aws.autoscaling.GroupWarmPoolArgs(
                pool_state="Stopped",
                min_size=warm,
                max_group_prepared_capacity=warm,
            )
            if warm
            else None,
        )

    def _auto_scaling_group(
        self,
        side: str,
        template: LaunchTemplate,
        distribution: aws.autoscaling.GroupMixedInstancesPolicyInstancesDistributionArgs,
        *,
        capacity_rebalance: bool,
        initial_lifecycle_hooks: list[aws.autoscaling.GroupInitialLifecycleHookArgs] | None = None,
        warm_pool: aws.autoscaling.GroupWarmPoolArgs | None = None,
    ) -> aws.autoscaling.Group:
        args = self._args
        name = args.scope.name(args.group, side)
        tags = args.scope.tags(name, group=args.group, side=side)
        return aws.autoscaling.Group(
            name,
            min_size=0,
            max_size=args.maximum,
            desired_capacity=0,
            vpc_zone_identifiers=args.subnet_ids,
            mixed_instances_policy=aws.autoscaling.GroupMixedInstancesPolicyArgs(
                instances_distribution=distribution,
                launch_template=aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateArgs(
                    launch_template_specification=aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateLaunchTemplateSpecificationArgs(
                        launch_template_id=template.id, version=template.version
                    ),
                    overrides=[
                        aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateOverrideArgs(
                            instance_type=kind
                        )
                        for kind in args.instance_types
                    ],
                ),
            ),
            capacity_rebalance=capacity_rebalance,
            # Evening out zones ends instances that work. Launches still spread over the zones.
            suspended_processes=["AZRebalance"],
            initial_lifecycle_hooks=initial_lifecycle_hooks,
            warm_pool=warm_pool,
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
        args = self._args
        config = {
            "kind": args.kind,
            "primary": self.primary_name,
            "fallback": self.fallback_name,
            "base": args.on_demand_base,
            "spotPercentage": args.spot_percentage,
            "max": args.maximum,
            "slots": dict.fromkeys(args.instance_types, args.slots),
            "drainSeconds": args.drain_seconds,
            "policy": {"name": args.policy, "knobs": dict(args.knobs)},
        }
        self._parameter(
            names.PARAMETER_CONFIG, "What the controller must know", pulumi.Output.json_dumps(config)
        )
        self._parameter(names.PARAMETER_TARGET, "How many instances to keep up", str(args.target))
        # People change the mode by hand, and `up` leaves it as they set it.
        self._parameter(
            names.PARAMETER_CONTROL,
            "Set by people",
            '{"mode": "automatic"}',
            ignore_changes=["insecureValue"],
        )

    def _parameter(
        self, leaf: str, description: str, value: pulumi.Input[str], ignore_changes: list[str] | None = None
    ) -> None:
        args = self._args
        name = args.scope.name(args.group, leaf)
        aws.ssm.Parameter(
            name,
            name=names.group_parameter(args.scope.stack, args.group, leaf),
            type=aws.ssm.ParameterType.STRING,
            description=f"{description} ({args.group})",
            # Not a secret: as `value` the provider would hide it in every preview.
            insecure_value=value,
            tags=args.scope.tags(name, group=args.group),
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=ignore_changes),
        )
