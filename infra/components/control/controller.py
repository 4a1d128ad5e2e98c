"""The controller: the function that keeps groups at their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.components.control.scheduled_function import FunctionArgs, FunctionContext, declare_function
from infra.components.control.wake_ups import WakeUps, WakeUpsArgs
from infra.iam import controller_statements

_SHORT: Final = "controller"
_TIMEOUT_SECONDS: Final = 95
"""A pass ends 40 seconds before: what has begun is completed."""
_VISIBILITY_TIMEOUT_SECONDS: Final = 6 * _TIMEOUT_SECONDS
"""At least six times the function's timeout (Lambda guide, "Configuring a queue to use with Lambda")."""
BATCH_SIZE: Final = 100
"""Maximum messages per invocation: many warnings arrive at once when a capacity pool is reclaimed."""
MAX_CONCURRENCY: Final = 2

SERVICE: Final = names.SERVICE_CONTROLLER


@dataclass(frozen=True)
class ControllerArgs:
    """Arguments of ``Controller``.

    Attributes:
        has_fleets: Some groups are Spot Fleets.
        has_capacity_blocks: Some groups have a Capacity Block.
        launches_by_zone: Some groups launch instances in a given zone.
        scheduled_jobs: Jobs with a schedule.
        depends_on: Created before the event source mapping and deleted after it.
    """

    context: FunctionContext
    has_fleets: bool
    has_capacity_blocks: bool
    launches_by_zone: bool
    scheduled_jobs: Sequence[str] = ()
    depends_on: list[pulumi.Resource] = field(default_factory=list)


class Controller(pulumi.ComponentResource):
    """The function with its log group, wake-up queue, role and event source mapping."""

    function_name: pulumi.Output[str]
    log_group_name: pulumi.Output[str]
    wake_ups: WakeUps

    def __init__(self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the controller."""
        super().__init__("gpu-spot:infra:Controller", name, None, opts)
        scope = args.context.scope
        function_name = scope.name(_SHORT)
        self.wake_ups = WakeUps(
            scope.name("wake-ups"),
            WakeUpsArgs(scope, _VISIBILITY_TIMEOUT_SECONDS, args.has_fleets),
            pulumi.ResourceOptions(parent=self),
        )
        function, self.log_group_name = declare_function(
            FunctionArgs(
                context=args.context,
                short=_SHORT,
                description="Keeps GPU capacity at its target",
                handler=names.CONTROLLER_HANDLER,
                service=SERVICE,
                timeout_seconds=_TIMEOUT_SECONDS,
                statements=controller_statements.controller(
                    scope,
                    queue_arn=self.wake_ups.queue_arn,
                    memory_arn=args.context.state.memory.arn,
                    registry_arn=args.context.state.registry.arn,
                    has_fleets=args.has_fleets,
                    has_capacity_blocks=args.has_capacity_blocks,
                    launches_by_zone=args.launches_by_zone,
                    scheduled_jobs=args.scheduled_jobs,
                ),
                environment={**args.context.group_variables, names.ENV_QUEUE_URL: self.wake_ups.queue_url},
                memory_mib=512,
            ),
            self,
        )
        aws.lambda_.EventSourceMapping(
            function_name,
            event_source_arn=self.wake_ups.queue_arn,
            function_name=function.name,
            batch_size=BATCH_SIZE,
            maximum_batching_window_in_seconds=1,
            function_response_types=["ReportBatchItemFailures"],
            scaling_config=aws.lambda_.EventSourceMappingScalingConfigArgs(
                maximum_concurrency=MAX_CONCURRENCY
            ),
            tags=scope.tags(function_name),
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.depends_on),
        )
        self.function_name = function.name
        self.register_outputs({"function": self.function_name, "logGroup": self.log_group_name})
