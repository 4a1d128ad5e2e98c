"""Lambda functions of a stack: what all have in common, and those that run each minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.agent import config as agent
from infra.archives import functions as archive
from infra.components.control.state import State
from infra.components.identity.identity import FunctionIdentity, FunctionIdentityArgs
from infra.components.network.network import Network
from infra.iam.statement import Statement, write_log
from infra.schema import Service
from infra.scope import Scope, check_size


@dataclass(frozen=True)
class FunctionContext:
    """What all functions of a stack share; ``layer_arn`` is the layer with boto3."""

    scope: Scope
    state: State
    layer_arn: pulumi.Input[str]
    log_retention_days: int

    @property
    def group_variables(self) -> dict[str, pulumi.Input[str]]:
        """Variables by which a function finds the groups, the functions' memory and the worker registry."""
        return {
            names.ENV_PARAMETER_ROOT: names.parameter_root(self.scope.stack),
            names.ENV_MEMORY_TABLE: self.state.memory.name,
            names.ENV_REGISTRY_TABLE: self.state.registry.name,
            names.ENV_INSTANCE_ARNS: self.scope.arn("ec2", "instance/"),
        }


@dataclass(frozen=True)
class FunctionArgs:
    """A function.

    Attributes:
        short: The function's name without the stack's prefix.
        service: The function's name in logs and metrics.
        timeout_seconds: Below 60 if it runs each minute.
        statements: Permissions in addition to writing its log.
        network: The function runs in the private subnets with the workers' security groups, if given.
        depends_on: Created before the first invocation.
    """

    context: FunctionContext
    short: str
    description: str
    handler: str
    service: str
    timeout_seconds: int
    statements: Sequence[Statement]
    environment: Mapping[str, pulumi.Input[str]]
    memory_mib: int = 256
    network: Network | None = None
    depends_on: Sequence[pulumi.Resource] = ()


@dataclass(frozen=True)
class ServiceFunctionArgs:
    """Arguments of the health checker and the scaler; ``topic_arn`` receives their messages and alarms.

    ``queues`` are the services' queues, as the node agent reads them.
    """

    context: FunctionContext
    services: Sequence[Service]
    topic_arn: pulumi.Input[str]
    depends_on: Sequence[pulumi.Resource] = ()
    queues: Mapping[str, pulumi.Output[agent.Queue]] = field(default_factory=dict)


def declare_function(
    args: FunctionArgs, parent: pulumi.Resource
) -> tuple[aws.lambda_.Function, pulumi.Output[str]]:
    """Declare a function with its log group and role; return it, and the name of its log group."""
    context, child = args.context, pulumi.ResourceOptions(parent=parent)
    scope = context.scope
    full = scope.name(args.short)
    # Before the function runs: Lambda would create one without a retention period.
    log = aws.cloudwatch.LogGroup(
        full,
        retention_in_days=context.log_retention_days,
        kms_key_id=scope.kms_key_arn,
        tags=scope.tags(full),
        opts=child,
    )
    allowed = [write_log(log.arn), *args.statements]
    identity = FunctionIdentity(full, FunctionIdentityArgs(scope, args.short, allowed), child)
    network = args.network
    # Lambda guide, "Lambda quotas": 4 KB for all variables. They grow with the stack's queues.
    variables: dict[str, pulumi.Input[str]] = {
        names.ENV_STACK: scope.stack,
        "POWERTOOLS_SERVICE_NAME": args.service,
        "POWERTOOLS_METRICS_NAMESPACE": names.METRIC_NAMESPACE,
        **args.environment,
    }
    texts = pulumi.Output.all(**variables).apply(lambda values: "".join((*values, *values.values())))
    texts.apply(lambda text: check_size(f"the environment of {full}", len(text.encode()), 4096, "bytes"))
    function = aws.lambda_.Function(
        full,
        description=args.description,
        runtime=aws.lambda_.Runtime.PYTHON3D13,
        architectures=["x86_64"],
        handler=args.handler,
        code=pulumi.FileArchive(str(archive.build().path)),
        layers=[context.layer_arn],
        kms_key_arn=scope.kms_key_arn,
        role=identity.role_arn,
        timeout=args.timeout_seconds,
        memory_size=args.memory_mib,
        environment=aws.lambda_.FunctionEnvironmentArgs(variables=variables),
        vpc_config=aws.lambda_.FunctionVpcConfigArgs(
            subnet_ids=list(network.subnet_ids.values()), security_group_ids=list(network.security_group_ids)
        )
        if network is not None
        else None,
        logging_config=aws.lambda_.FunctionLoggingConfigArgs(log_format="JSON", log_group=log.name),
        tags=scope.tags(full),
        opts=child,
    )
    return function, log.name


class ScheduledFunction(pulumi.ComponentResource):
    """A function with its log group, role and schedule: it runs each minute."""

    function_name: pulumi.Output[str]
    log_group_name: pulumi.Output[str]

    def __init__(self, name: str, args: FunctionArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the function."""
        super().__init__("gpu-spot:infra:ScheduledFunction", name, None, opts)
        scope, child = args.context.scope, pulumi.ResourceOptions(parent=self)
        full = scope.name(args.short)
        function, self.log_group_name = declare_function(args, self)
        # A schedule invokes asynchronously: Lambda would retry a failed event twice and keep a throttled one
        # for six hours (Lambda guide, errors of asynchronous invocation). The next minute's event is enough.
        aws.lambda_.FunctionEventInvokeConfig(
            full,
            function_name=function.name,
            maximum_retry_attempts=0,
            maximum_event_age_in_seconds=60,
            opts=child,
        )
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
        # Without the endpoints of its network it could not connect.
        ready = [permission, *([args.network] if args.network is not None else []), *args.depends_on]
        aws.cloudwatch.EventTarget(
            full, rule=rule.name, arn=function.arn, opts=pulumi.ResourceOptions(parent=self, depends_on=ready)
        )
        self.function_name = function.name
        self.register_outputs({"function": self.function_name, "logGroup": self.log_group_name})
