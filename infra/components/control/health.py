"""The health checker: its function, parameters and alarms."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.group import health_settings as settings
from contracts.group import release_settings as releases
from infra.components.capacity import parameter
from infra.components.control.health_alarms import alarms
from infra.components.control.scheduled_function import FunctionArgs, ScheduledFunction, ServiceFunctionArgs
from infra.components.monitoring.alarm_spec import declare_alarm
from infra.iam import health_statements
from infra.schema import Service

_SHORT: Final = "health-checker"
_TIMEOUT_SECONDS: Final = 55


class HealthChecker(pulumi.ComponentResource):
    """The health checker: parameters of each service, a function that runs each minute, its alarms."""

    log_group_name: pulumi.Output[str]

    def __init__(
        self, name: str, args: ServiceFunctionArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the health checker."""
        super().__init__("gpu-spot:infra:HealthChecker", name, None, opts)
        context = args.context
        self._scope = scope = context.scope
        self._queues = args.queues
        parameters = [self._parameters(service) for service in args.services]
        function = ScheduledFunction(
            name,
            FunctionArgs(
                context=context,
                short=_SHORT,
                description="Checks the health of services' workers",
                handler=names.HEALTH_HANDLER,
                service=names.SERVICE_HEALTH,
                timeout_seconds=_TIMEOUT_SECONDS,
                statements=health_statements.health_checker(
                    scope,
                    memory_arn=context.state.memory.arn,
                    registry_arn=context.state.registry.arn,
                    topic_arn=args.topic_arn,
                ),
                environment={**context.group_variables, names.ENV_TOPIC: args.topic_arn},
                depends_on=[
                    *args.depends_on,
                    *(parameter for of_service in parameters for parameter in of_service),
                ],
            ),
            pulumi.ResourceOptions(parent=self),
        )
        services = {service.name: service.queue is not None for service in args.services}
        for alarm in alarms(scope.stack, services, function.function_name):
            declare_alarm(scope, args.topic_arn, alarm, self)
        self.log_group_name = function.log_group_name
        self.register_outputs({"logGroup": self.log_group_name})

    def _parameters(self, service: Service) -> list[aws.ssm.Parameter]:
        scope, group = self._scope, service.name
        read: dict[str, tuple[str, pulumi.Input[str]]] = {
            names.PARAMETER_HEALTH: ("Health check settings", settings.dumps(service.health.contract))
        }
        if (desired := service.desired_release) is not None:
            read[names.PARAMETER_RELEASE] = "Release of the workers", self._with_queue(desired, group)
        written = {
            names.PARAMETER_REPLACEMENT_REQUESTS: "Replacement requests of the health checker",
            names.PARAMETER_ROLLOUT_REQUEST: "Capacity request of a rollout",
        }
        return [
            *(
                parameter.declare(scope, self, group, leaf, description, value)
                for leaf, (description, value) in read.items()
            ),
            *(
                parameter.declare(scope, self, group, leaf, description, "{}", is_initial_value=True)
                for leaf, description in written.items()
            ),
        ]

    def _with_queue(self, desired: releases.DesiredRelease, group: str) -> pulumi.Input[str]:
        """Return the parameter's value with the group's queue: running workers follow a changed one."""
        queue = self._queues.get(group)
        if queue is None:
            return releases.dumps(desired)
        return queue.apply(
            lambda value: releases.dumps(replace(desired, release=replace(desired.release, queue=(value,))))
        )
