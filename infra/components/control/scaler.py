"""The scaler: its function, parameters and alarms."""

from __future__ import annotations

from typing import Final

import pulumi

from contracts import names
from contracts.group import scaling_settings as settings
from infra.components.capacity import parameter
from infra.components.control import request_log
from infra.components.control.scaler_alarms import alarms
from infra.components.control.scheduled_function import (
    ScheduledFunction,
    ScheduledFunctionArgs,
    ServiceFunctionArgs,
)
from infra.components.monitoring.alarm_spec import declare_alarm
from infra.iam import scaler_statements

_SHORT: Final = "scaler"
_TIMEOUT_SECONDS: Final = 55


class Scaler(pulumi.ComponentResource):
    """The scaler: a parameter of each service, a function that runs each minute, its alarms."""

    log_group_name: pulumi.Output[str]

    def __init__(
        self, name: str, args: ServiceFunctionArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the scaler."""
        super().__init__("gpu-spot:infra:Scaler", name, None, opts)
        scope, services = args.scope, [service.name for service in args.services]
        parameters = [
            parameter.declare(
                scope,
                self,
                service.name,
                names.PARAMETER_SCALING,
                "Scaling settings",
                settings.dumps(
                    service.scaling.contract(service.capacity.max_target, service.workers_per_slot)
                ),
            )
            for service in args.services
            if service.scaling is not None
        ]
        logs = [
            (service.name, service.scaling.log)
            for service in args.services
            if service.scaling is not None and service.scaling.log is not None
        ]
        for service_name, log in logs:
            request_log.declare(scope, self, service_name, log)
        function = ScheduledFunction(
            name,
            ScheduledFunctionArgs(
                scope=scope,
                short=_SHORT,
                description="Sets the targets of services that scale",
                handler=names.SCALER_HANDLER,
                service=names.SERVICE_SCALER,
                layer_arn=args.layer_arn,
                timeout_seconds=_TIMEOUT_SECONDS,
                log_retention_days=args.log_retention_days,
                statements=scaler_statements.scaler(
                    scope,
                    services,
                    memory_arn=args.state.memory.arn,
                    registry_arn=args.state.registry.arn,
                    reads_metrics=bool(logs),
                ),
                environment={
                    names.ENV_PARAMETER_ROOT: names.parameter_root(scope.stack),
                    names.ENV_MEMORY_TABLE: args.state.memory.name,
                    names.ENV_REGISTRY_TABLE: args.state.registry.name,
                    names.ENV_INSTANCE_ARNS: scope.arn("ec2", "instance/"),
                },
                depends_on=[*args.depends_on, *parameters],
            ),
            pulumi.ResourceOptions(parent=self),
        )
        for alarm in alarms(scope.stack, services, function.function_name):
            declare_alarm(scope, args.topic_arn, alarm, self)
        self.log_group_name = function.log_group_name
        self.register_outputs({"logGroup": self.log_group_name})
