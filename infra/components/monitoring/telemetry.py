"""The CloudWatch agent's configuration on instances: GPU metrics, metrics of the node agent, logs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from contracts import names
from contracts.agent.config import Metrics
from infra.scope import Scope
from userdata.render import CLOUD_INIT_LOG, UNIT_LOG

_GPU_METRICS: Final = (
    "utilization_gpu",
    "utilization_memory",
    "memory_used",
    "temperature_gpu",
    "power_draw",
)
"""Metrics of the ``nvidia_gpu`` section, published as ``nvidia_smi_…``.

Each is billed as a custom metric. Per GPU, these five would cost $12 a month for eight GPUs.
"""


@dataclass(frozen=True)
class TelemetryArgs:
    """``group`` is the capacity group of the instances; ``is_nvidia`` adds GPU metrics.

    ``part`` are other instances of the group than its workers, in words: their names end with it.
    """

    scope: Scope
    group: str
    log_retention_days: int
    is_nvidia: bool
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
        # A slash: no name of another group has one.
        self.log_group_name = f"/gpu-spot/{scope.stack}/instances/{'/'.join(parts)}"
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
            insecure_value=json.dumps(configuration(scope.stack, group, self.log_group_name, args.is_nvidia)),
            tags=scope.tags(parameter_name, group=group),
            opts=child,
        )
        self.register_outputs({"logGroup": log.name})


def configuration(stack: str, group: str, log_group: str, is_nvidia: bool) -> dict[str, Any]:
    """Return the CloudWatch agent's configuration; GPU metrics are aggregated by group."""
    gpus = {
        "namespace": names.INSTANCE_NAMESPACE,
        "append_dimensions": {"InstanceId": "${aws:InstanceId}"},
        "aggregation_dimensions": [["group", "stack"]],
        "metrics_collected": {
            "nvidia_gpu": {
                "measurement": list(_GPU_METRICS),
                # Only aggregates are sent, so the number of metrics is independent of GPUs and instances.
                "drop_original_metrics": list(_GPU_METRICS),
                "append_dimensions": {"group": group, "stack": stack},
            }
        },
    }
    return {
        "agent": {"metrics_collection_interval": 60},
        **({"metrics": gpus} if is_nvidia else {}),
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
        },
    }
