"""The function that looks whether services' workers work, and what it is told and writes."""

from __future__ import annotations

from typing import Final

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.group import health_settings as settings
from contracts.group import release_settings as releases
from infra.components.capacity import parameter
from infra.components.control.health_alarms import alarms
from infra.components.control.scheduled_function import (
    KeeperArgs,
    ScheduledFunction,
    ScheduledFunctionArgs,
)
from infra.components.monitoring.alarm_spec import declare
from infra.iam import health_statements
from infra.schema import Service

_SHORT: Final = "health-checker"
_TIMEOUT: Final = 55


class HealthChecker(pulumi.ComponentResource):
    """Produces: each service's parameters for the health checker, a function each minute, its alarms."""

    log_group_name: pulumi.Output[str]

    def __init__(self, name: str, args: KeeperArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the health checker."""
        super().__init__("gpu-spot:infra:HealthChecker", name, None, opts)
        self._scope = scope = args.scope
        told = [self._parameters(service) for service in args.services]
        function = ScheduledFunction(
            name,
            ScheduledFunctionArgs(
                scope=scope,
                short=_SHORT,
                description="Looks whether services' workers work",
                handler=names.HEALTH_HANDLER,
                service=names.SERVICE_HEALTH,
                timeout=_TIMEOUT,
                log_retention_days=args.log_retention_days,
                allowed=health_statements.health_checker(
                    scope,
                    memory_arn=args.state.memory.arn,
                    registry_arn=args.state.registry.arn,
                    topic_arn=args.topic_arn,
                ),
                environment={
                    names.ENV_PARAMETER_ROOT: names.parameter_root(scope.stack),
                    names.ENV_MEMORY_TABLE: args.state.memory.name,
                    names.ENV_REGISTRY_TABLE: args.state.registry.name,
                    names.ENV_TOPIC: args.topic_arn,
                },
                ready_after=[*args.ready_after, *(one for both in told for one in both)],
            ),
            pulumi.ResourceOptions(parent=self),
        )
        services = [service.name for service in args.services]
        for alarm in alarms(scope.stack, services, function.function_name):
            declare(scope, args.topic_arn, alarm, self)
        self.log_group_name = function.log_group_name
        self.register_outputs({"logGroup": self.log_group_name})

    def _parameters(self, service: Service) -> list[aws.ssm.Parameter]:
        scope, group = self._scope, service.name
        told = "What the health checker must know"
        wished = "Instances that the health checker wants replaced"
        rolled = "What the health checker asks of the controller while it rolls a release out"
        started = "From what the workers are to be started"
        kept = {names.PARAMETER_HEALTH: (told, settings.dumps(service.health.told))}
        if service.wanted is not None:
            kept[names.PARAMETER_RELEASE] = started, releases.dumps(service.wanted)
        others = {names.PARAMETER_WISHES: wished, names.PARAMETER_ROLLING: rolled}
        return [
            *(parameter.declare(scope, self, group, leaf, *what) for leaf, what in kept.items()),
            *(
                parameter.declare(scope, self, group, leaf, what, "{}", owned_by_others=True)
                for leaf, what in others.items()
            ),
        ]
