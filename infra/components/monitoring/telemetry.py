"""The CloudWatch agent's configuration on instances: metrics of the node agent, logs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from contracts.agent.config import Metrics
from infra.scope import Scope
from userdata.render import CLOUD_INIT_LOG, UNIT_LOG


@dataclass(frozen=True)
class TelemetryArgs:
    """``group`` is the capacity group of the instances.

    ``part`` are other instances of the group than its workers, in words: their names end with it.
    """

    scope: Scope
    group: str
    log_retention_days: int
    part: str = ""


class Telemetry(pulumi.ComponentResource):
    """The log group of a group's instances and a parameter with their CloudWatch agent's configuration."""

    log_group_arn: pulumi.Output[str]
    log_group_name: str
    parameter_name: str

    def __init__(self, name: str, args: TelemetryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare log group and parameter."""
        super().__init__("gpu-spot:infra:Telemetry", name, None, opts)
        scope, group, child = args.scope, args.group, pulumi.ResourceOptions(parent=self)
        parts = [group, *([args.part] if args.part else [])]
        self.log_group_name = log_group_name(scope, *parts)
        self.parameter_name = f"/gpu-spot/{scope.stack}/cloudwatch-agent/{'/'.join(parts)}"
        log_name, parameter_name = scope.name(*parts, "log"), scope.name(*parts, "agent")
        log = aws.cloudwatch.LogGroup(
            log_name,
            name=self.log_group_name,
            retention_in_days=args.log_retention_days,
            kms_key_id=scope.kms_key_arn,
            tags=scope.tags(log_name, group=group),
            opts=child,
        )
        self.log_group_arn = log.arn
        aws.ssm.Parameter(
            parameter_name,
            name=self.parameter_name,
            type=aws.ssm.ParameterType.STRING,
            description=f"Configuration of the CloudWatch agent on instances of {'/'.join(parts)}",
            insecure_value=json.dumps(configuration(self.log_group_name)),
            tags=scope.tags(parameter_name, group=group),
            opts=child,
        )
        self.register_outputs({"logGroup": log.name})


def log_group_name(scope: Scope, *parts: str) -> str:
    """Return the log group of a group's instances; a slash: no name of another group has one."""
    return f"/gpu-spot/{scope.stack}/instances/{'/'.join(parts)}"


def configuration(log_group: str) -> dict[str, Any]:
    """Return the CloudWatch agent's configuration: it passes on logs, and the node agent's metrics."""
    return {
        "logs": {
            "metrics_collected": {"emf": {"service_address": f"tcp://127.0.0.1:{Metrics().emf_port}"}},
            "logs_collected": {
                "files": {
                    "collect_list": [
                        {
                            "file_path": path,
                            "log_group_name": log_group,
                            "log_stream_name": f"{{instance_id}}/{stream}",
                        }
                        for path, stream in ((CLOUD_INIT_LOG, "boot"), (UNIT_LOG, "units"))
                    ]
                }
            },
        }
    }
