"""The function that keeps the groups at their targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.archives import functions as archive
from infra.components.control.state import State
from infra.components.control.wake_ups import WakeUps, WakeUpsArgs
from infra.components.identity.identity import FunctionIdentity, FunctionIdentityArgs
from infra.iam import controller_statements
from infra.scope import Scope

_TIMEOUT: Final = 60
_VISIBILITY: Final = 6 * _TIMEOUT
"""At least six times the function's timeout (Lambda guide, "Configuring a queue to use with Lambda")."""
BATCH: Final = 100
"""The most messages of a run: one answers a whole burst, for many warnings come when a pool is taken back."""
RUNS: Final = 2
"""The most at once."""

SERVICE: Final = names.SERVICE_CONTROLLER


@dataclass(frozen=True)
class ControllerArgs:
    """``ready_after``: what must exist before the first wake-up, and be gone only after the last one.

    ``fleets``: whether some of the groups are Spot Fleets; ``blocks``: whether some have a Capacity Block;
    ``zones``: whether some are asked for on-demand in one zone.
    """

    scope: Scope
    state: State
    log_retention_days: int
    fleets: bool
    blocks: bool
    zones: bool
    ready_after: list[pulumi.Resource] = field(default_factory=list)


class Controller(pulumi.ComponentResource):
    """Produces: log group, wake-ups (queues and rules), function identity, function, event source mapping."""

    function_name: pulumi.Output[str]
    log_group_name: pulumi.Output[str]
    wake_ups: WakeUps

    def __init__(self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the controller."""
        super().__init__("gpu-spot:infra:Controller", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        function_name = scope.name("controller")
        # Ours, before the function runs: Lambda would make one that keeps its events for ever.
        log = aws.cloudwatch.LogGroup(
            function_name,
            retention_in_days=args.log_retention_days,
            kms_key_id=scope.kms_key_arn,
            tags=scope.tags(function_name),
            opts=child,
        )
        self.wake_ups = WakeUps(
            scope.name("wake-ups"),
            WakeUpsArgs(scope, _VISIBILITY, args.fleets),
            pulumi.ResourceOptions(parent=self),
        )
        identity = FunctionIdentity(
            function_name,
            FunctionIdentityArgs(
                scope,
                "controller",
                controller_statements.controller(
                    scope,
                    queue_arn=self.wake_ups.queue_arn,
                    memory_arn=args.state.memory.arn,
                    registry_arn=args.state.registry.arn,
                    log_group_arn=log.arn,
                    fleets=args.fleets,
                    blocks=args.blocks,
                    zones=args.zones,
                ),
            ),
            child,
        )
        function = aws.lambda_.Function(
            function_name,
            description="Keeps GPU capacity at its target",
            runtime=aws.lambda_.Runtime.PYTHON3D13,
            architectures=["x86_64"],
            handler=names.CONTROLLER_HANDLER,
            code=archive.build(),
            kms_key_arn=scope.kms_key_arn,
            role=identity.role_arn,
            timeout=_TIMEOUT,
            memory_size=512,
            environment=aws.lambda_.FunctionEnvironmentArgs(
                variables={
                    names.ENV_STACK: scope.stack,
                    names.ENV_PARAMETER_ROOT: names.parameter_root(scope.stack),
                    names.ENV_MEMORY_TABLE: args.state.memory.name,
                    names.ENV_REGISTRY_TABLE: args.state.registry.name,
                    names.ENV_QUEUE_URL: self.wake_ups.queue_url,
                    "POWERTOOLS_SERVICE_NAME": SERVICE,
                    "POWERTOOLS_METRICS_NAMESPACE": names.METRIC_NAMESPACE,
                }
            ),
            logging_config=aws.lambda_.FunctionLoggingConfigArgs(log_format="JSON", log_group=log.name),
            tags=scope.tags(function_name),
            opts=child,
        )
        aws.lambda_.EventSourceMapping(
            function_name,
            event_source_arn=self.wake_ups.queue_arn,
            function_name=function.name,
            batch_size=BATCH,
            maximum_batching_window_in_seconds=1,
            function_response_types=["ReportBatchItemFailures"],
            scaling_config=aws.lambda_.EventSourceMappingScalingConfigArgs(maximum_concurrency=RUNS),
            tags=scope.tags(function_name),
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.ready_after),
        )
        self.function_name, self.log_group_name = function.name, log.name
        self.register_outputs({"function": self.function_name, "logGroup": self.log_group_name})
