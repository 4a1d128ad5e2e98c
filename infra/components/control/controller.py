"""The controller: the function that keeps groups at their targets."""

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

_TIMEOUT_SECONDS: Final = 60
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
        layer_arn: The layer with boto3.
        has_fleets: Some groups are Spot Fleets.
        has_capacity_blocks: Some groups have a Capacity Block.
        launches_by_zone: Some groups launch On-Demand instances in a given zone.
        depends_on: Created before the event source mapping and deleted after it.
    """

    scope: Scope
    state: State
    layer_arn: pulumi.Input[str]
    log_retention_days: int
    has_fleets: bool
    has_capacity_blocks: bool
    launches_by_zone: bool
    depends_on: list[pulumi.Resource] = field(default_factory=list)


class Controller(pulumi.ComponentResource):
    """The function with its log group, wake-up queue, role and event source mapping."""

    function_name: pulumi.Output[str]
    log_group_name: pulumi.Output[str]
    wake_ups: WakeUps

    def __init__(self, name: str, args: ControllerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the controller."""
        super().__init__("gpu-spot:infra:Controller", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        function_name = scope.name("controller")
        # Before the function runs: Lambda would create one without a retention period.
        log = aws.cloudwatch.LogGroup(
            function_name,
            retention_in_days=args.log_retention_days,
            kms_key_id=scope.kms_key_arn,
            tags=scope.tags(function_name),
            opts=child,
        )
        self.wake_ups = WakeUps(
            scope.name("wake-ups"),
            WakeUpsArgs(scope, _VISIBILITY_TIMEOUT_SECONDS, args.has_fleets),
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
                    has_fleets=args.has_fleets,
                    has_capacity_blocks=args.has_capacity_blocks,
                    launches_by_zone=args.launches_by_zone,
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
            layers=[args.layer_arn],
            kms_key_arn=scope.kms_key_arn,
            role=identity.role_arn,
            timeout=_TIMEOUT_SECONDS,
            memory_size=512,
            environment=aws.lambda_.FunctionEnvironmentArgs(
                variables={
                    names.ENV_STACK: scope.stack,
                    names.ENV_PARAMETER_ROOT: names.parameter_root(scope.stack),
                    names.ENV_MEMORY_TABLE: args.state.memory.name,
                    names.ENV_REGISTRY_TABLE: args.state.registry.name,
                    names.ENV_INSTANCE_ARNS: scope.arn("ec2", "instance/"),
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
            batch_size=BATCH_SIZE,
            maximum_batching_window_in_seconds=1,
            function_response_types=["ReportBatchItemFailures"],
            scaling_config=aws.lambda_.EventSourceMappingScalingConfigArgs(
                maximum_concurrency=MAX_CONCURRENCY
            ),
            tags=scope.tags(function_name),
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.depends_on),
        )
        self.function_name, self.log_group_name = function.name, log.name
        self.register_outputs({"function": self.function_name, "logGroup": self.log_group_name})
