"""The deployed sample program with a running market."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moto.sqs.models import sqs_backends

from contracts import names
from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto.emulator import ACCOUNT, AwsClients
from pulumi_on_moto.program.deployment import Deployment
from pulumi_on_moto.running.clock import SimulatedTime
from rehearsal.cloud.local_cloud import LocalCloud

SAMPLE = Path(__file__).parents[2] / "packages/pulumi-on-moto/tests/sample"
OURS = {
    "prefix": "/gpu-spot",
    "tableVariable": names.ENV_REGISTRY_TABLE,
    "variables": {names.ENV_INSTANCE_ARNS: f"arn:aws:ec2:us-west-2:{ACCOUNT}:instance/"},
}
"""What gpu-spot reads of a deployment, under the names that it reads."""
START = 1_700_000_000.0
LAUNCHING = {"LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING"}


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
    group: str = "inference"

    def name(self, side: GroupRole = GroupRole.FALLBACK) -> str:
        return self.cloud.group(self.group).side(side)

    def described(self, side: GroupRole = GroupRole.FALLBACK) -> Any:
        """Return a group as Auto Scaling describes it."""
        names = [self.name(side)]
        reply = self.clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=names)
        return reply["AutoScalingGroups"][0]

    @property
    def primary(self) -> Any:
        return self.described(GroupRole.PRIMARY)

    def members(self, side: GroupRole = GroupRole.FALLBACK) -> dict[str, dict[str, Any]]:
        return {member["InstanceId"]: member for member in self.described(side)["Instances"]}

    def newest(self) -> dict[str, Any]:
        """Return the newest activity of the fallback."""
        asked = {"AutoScalingGroupName": self.name()}
        found = self.clients("autoscaling").describe_scaling_activities(**asked)["Activities"]
        return dict(found[0])

    def launch(self, kind: str = "g5.xlarge", zone: str = "us-west-2a") -> str:
        """Let the market launch a Spot Instance of the primary group."""
        return self.cloud.launch(self.group, GroupRole.PRIMARY, kind, zone, PurchaseOption.SPOT)

    def buy(self, zone: str = "us-west-2a", side: GroupRole = GroupRole.FALLBACK) -> str:
        """Let the market launch an On-Demand Instance."""
        return self.cloud.launch(self.group, side, "g5.xlarge", zone, PurchaseOption.ON_DEMAND)

    def want(self, capacity: int, side: GroupRole = GroupRole.FALLBACK) -> None:
        self.clients("autoscaling").set_desired_capacity(
            AutoScalingGroupName=self.name(side), DesiredCapacity=capacity
        )

    def terminate(self, instance_id: str) -> Any:
        """Terminate a member, as the controller does, and lower the desired capacity."""
        return self.clients("autoscaling").terminate_instance_in_auto_scaling_group(
            InstanceId=instance_id, ShouldDecrementDesiredCapacity=True
        )

    def instance(self, instance_id: str) -> Any:
        reply = self.clients("ec2").describe_instances(InstanceIds=[instance_id])
        return reply["Reservations"][0]["Instances"][0]


@contextmanager
def hooked(running: Running, **changes: Any) -> Iterator[dict[str, Any]]:
    """Let the fallback have a hook, by default of terminations, while the body runs."""
    hook = {"AutoScalingGroupName": running.name(), "LifecycleHookName": "hook"}
    ending = {"LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "HeartbeatTimeout": 300}
    running.clients("autoscaling").put_lifecycle_hook(**hook, **{**ending, **changes})
    try:
        yield hook
    finally:
        running.clients("autoscaling").delete_lifecycle_hook(**hook)


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
