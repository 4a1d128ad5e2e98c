"""The scaler: its function, parameters and alarms."""

from __future__ import annotations

from typing import Final

import pulumi

from contracts import names
from contracts.group import scaling_settings as settings
from infra.components.capacity import parameter
from infra.components.control import request_log
from infra.components.control.scaler_alarms import alarms
from infra.components.control.scheduled_function import FunctionArgs, ScheduledFunction, ServiceFunctionArgs
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
        context, services = args.context, [service.name for service in args.services]
        scope = context.scope
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
            FunctionArgs(
                context=context,
                short=_SHORT,
                description="Sets the targets of services that scale",
                handler=names.SCALER_HANDLER,
                service=names.SERVICE_SCALER,
                timeout_seconds=_TIMEOUT_SECONDS,
                statements=scaler_statements.scaler(
                    scope,
                    services,
                    memory_arn=context.state.memory.arn,
                    registry_arn=context.state.registry.arn,
                    reads_metrics=bool(logs),
                ),
                environment=context.group_variables,
                depends_on=[*args.depends_on, *parameters],
            ),
            pulumi.ResourceOptions(parent=self),
        )
        for alarm in alarms(scope.stack, services, function.function_name):
            declare_alarm(scope, args.topic_arn, alarm, self)
        self.log_group_name = function.log_group_name
        self.register_outputs({"logGroup": self.log_group_name})
