"""The deployed sample program with a running market."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moto.sqs.models import sqs_backends

from contracts import names
from pulumi_on_moto.program.record import Deployment
from pulumi_on_moto.running.clock import SimulatedTime
from pulumi_on_moto.sandbox import ACCOUNT, AwsClients
from rehearsal.cloud.local_cloud import LocalCloud

SAMPLE = Path(__file__).parents[2] / "packages/pulumi-on-moto/tests/sample"
OURS = {
    "prefix": "/gpu-spot",
    "tableVariable": names.ENV_REGISTRY_TABLE,
    "variables": {names.ENV_INSTANCE_ARNS: f"arn:aws:ec2:us-west-2:{ACCOUNT}:instance/"},
}
"""What gpu-spot reads of a deployment, under the names that it reads."""
START = 1_700_000_000.0


@dataclass(frozen=True)
class Deployed:
    clients: AwsClients
    deployment: Deployment


@dataclass(frozen=True)
class Running:
    clients: AwsClients
    deployment: Deployment
    clock: SimulatedTime
    cloud: LocalCloud

    @property
    def primary(self) -> Any:
        name = self.cloud.group("inference").primary
        return self.clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])[
            "AutoScalingGroups"
        ][0]

    def instance(self, instance_id: str) -> Any:
        reply = self.clients("ec2").describe_instances(InstanceIds=[instance_id])
        return reply["Reservations"][0]["Instances"][0]


def bodies(running: Running) -> list[dict[str, Any]]:
    """Take what waits in the queue."""
    messages: list[dict[str, Any]] = []
    url = running.deployment.outputs["queue"]
    while (
        found := running.clients("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages")
    ):
        messages.extend(json.loads(message["Body"]) for message in found)
    return messages


def empty(running: Running) -> None:
    """Take away what earlier tests left: instances, activities, messages, heartbeats, loaded functions."""
    clients = running.clients
    running.deployment.functions.cool()
    view = running.cloud.group("inference")
    for name, desired in ((view.primary, 2), (view.fallback, 0)):
        group = running.cloud._instances.group(name)
        group.instance_states.clear()
        for attribute in ("local_activities", "local_warm"):
            if hasattr(group, attribute):
                getattr(group, attribute).clear()
        clients("autoscaling").set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=desired)
    backend = running.cloud._instances.ec2
    backend.reservations.clear()
    backend.spot_instance_requests.clear()
    for queue in sqs_backends[ACCOUNT][clients.region].queues.values():
        queue._messages.clear()  # PurgeQueue would be refused within a minute of the last one
        queue.pending_messages.clear()
    table = running.cloud.registry.table
    for item in clients("dynamodb").scan(TableName=table)["Items"]:
        key = {name: item[name] for name in ("group", "worker")}
        clients("dynamodb").delete_item(TableName=table, Key=key)
