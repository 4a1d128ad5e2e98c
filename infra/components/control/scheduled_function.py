"""A Lambda function that runs each minute."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from contracts import names
from infra.archives import functions as archive
from infra.components.control.state import State
from infra.components.identity.identity import FunctionIdentity, FunctionIdentityArgs
from infra.iam.statement import Statement, write_log
from infra.schema import Service
from infra.scope import Scope


@dataclass(frozen=True)
class ScheduledFunctionArgs:
    """Arguments of ``ScheduledFunction``.

    Attributes:
        short: The function's name without the stack's prefix.
        service: The function's name in logs and metrics.
        layer_arn: The layer with boto3.
        timeout_seconds: Below 60.
        statements: Permissions in addition to writing its log.
        subnet_ids: The function runs in these subnets of a VPC, if given, with ``security_group_ids``.
        depends_on: Created before the first invocation.
    """

    scope: Scope
    short: str
    description: str
    handler: str
    service: str
    layer_arn: pulumi.Input[str]
    timeout_seconds: int
    log_retention_days: int
    statements: Sequence[Statement]
    environment: Mapping[str, pulumi.Input[str]]
    subnet_ids: Collection[pulumi.Input[str]] = ()
    security_group_ids: Collection[pulumi.Input[str]] = ()
    depends_on: list[pulumi.Resource] = field(default_factory=list)


@dataclass(frozen=True)
class ServiceFunctionArgs:
    """Arguments of the health checker and the scaler; ``topic_arn`` receives their messages and alarms."""

    scope: Scope
    services: Sequence[Service]
    state: State
    layer_arn: pulumi.Input[str]
    topic_arn: pulumi.Input[str]
    log_retention_days: int
    depends_on: list[pulumi.Resource] = field(default_factory=list)


class ScheduledFunction(pulumi.ComponentResource):
    """A function with its log group, role and schedule."""

    function_name: pulumi.Output[str]
    log_group_name: pulumi.Output[str]

    def __init__(
        self, name: str, args: ScheduledFunctionArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the function."""
        super().__init__("gpu-spot:infra:ScheduledFunction", name, None, opts)
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        full = scope.name(args.short)
        # Before the function runs: Lambda would create one without a retention period.
        log = aws.cloudwatch.LogGroup(
            full,
            retention_in_days=args.log_retention_days,
            kms_key_id=scope.kms_key_arn,
            tags=scope.tags(full),
            opts=child,
        )
        allowed = [write_log(log.arn), *args.statements]
        identity = FunctionIdentity(full, FunctionIdentityArgs(scope, args.short, allowed), child)
        function = aws.lambda_.Function(
            full,
            description=args.description,
            runtime=aws.lambda_.Runtime.PYTHON3D13,
            architectures=["x86_64"],
            handler=args.handler,
            code=archive.build(),
            layers=[args.layer_arn],
            kms_key_arn=scope.kms_key_arn,
            role=identity.role_arn,
            timeout=args.timeout_seconds,
            memory_size=256,
            environment=aws.lambda_.FunctionEnvironmentArgs(
                variables={
                    names.ENV_STACK: scope.stack,
                    "POWERTOOLS_SERVICE_NAME": args.service,
                    "POWERTOOLS_METRICS_NAMESPACE": names.METRIC_NAMESPACE,
                    **args.environment,
                }
            ),
            vpc_config=aws.lambda_.FunctionVpcConfigArgs(
                subnet_ids=list(args.subnet_ids), security_group_ids=list(args.security_group_ids)
            )
            if args.subnet_ids
            else None,
            logging_config=aws.lambda_.FunctionLoggingConfigArgs(log_format="JSON", log_group=log.name),
            tags=scope.tags(full),
            opts=child,
        )
        # A schedule invokes asynchronously: Lambda would retry a failed event twice and keep a throttled one
        # for six hours (Lambda guide, errors of asynchronous invocation). The next minute's event is enough.
        aws.lambda_.FunctionEventInvokeConfig(
            full,
            function_name=function.name,
            maximum_retry_attempts=0,
            maximum_event_age_in_seconds=60,
            opts=child,
        )
        self._each_minute(full, scope, function, args.depends_on)
        self.function_name, self.log_group_name = function.name, log.name
        self.register_outputs({"function": self.function_name, "logGroup": self.log_group_name})

    def _each_minute(
        self, full: str, scope: Scope, function: aws.lambda_.Function, depends_on: list[pulumi.Resource]
    ) -> None:
        child = pulumi.ResourceOptions(parent=self)
        rule = aws.cloudwatch.EventRule(
            full,
            description=f"Invokes {full} each minute",
            schedule_expression="rate(1 minute)",
            tags=scope.tags(full),
            opts=child,
        )
        permission = aws.lambda_.Permission(
            full,
            action="lambda:InvokeFunction",
            function=function.name,
            principal="events.amazonaws.com",
            source_arn=rule.arn,
            opts=child,
        )
        aws.cloudwatch.EventTarget(
            full,
            rule=rule.name,
            arn=function.arn,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[permission, *depends_on]),
        )
