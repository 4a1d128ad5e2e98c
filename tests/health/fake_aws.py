"""An in-memory fake of the AWS calls of the health checker, which counts them."""

# ruff: noqa: N803 - boto3's own argument names

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import ClientError

from contracts import names
from contracts.group import health_settings as settings
from contracts.group.health_settings import HealthSettings
from contracts.registry import item as registry_item
from contracts.registry.item import Worker
from contracts.registry.worker_report import WorkerReport
from lambdas.aws.health.checker import HealthChecker, HealthCheckerConfig, build
from tests.lambdas.fake_aws import ARNS, FakeAws, partition

NOW = 1_767_571_200.0 + 8 * 3600
ROOT = "/gpu-spot/dev/groups"
PLACE = HealthCheckerConfig(
    "dev", ROOT, "memory", "registry", ARNS, "arn:aws:sns:us-west-2:123456789012:alarms"
)
GROUP = "inference"
REPORT = WorkerReport("sha256:1", gpu="GPU-1", reported_at=NOW, done=100, rate=1.0, gpu_use=70.0)
_MORE = {
    "ssm": ("put_parameter",),
    "autoscaling": ("describe_auto_scaling_instances",),
    "dynamodb": ("batch_get_item", "get_item", "put_item", "update_item"),
    "sns": ("publish",),
}


@dataclass
class HealthAws(FakeAws):
    """AWS state by name; ``rows`` are registry items by partition and worker."""

    now: float = NOW
    rows: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    messages: list[tuple[str, str]] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def add(self, size: int, group: str = GROUP, age: float = 7200.0) -> list[str]:
        """Add a group of instances with healthy workers; return their ids."""
        config = {
            "kind": "mixed-asg",
            "primary": f"{group}-primary",
            "fallback": f"{group}-fallback",
            "base": 0,
            "spotPercentage": 100,
            "max": 2 * size,
            "slots": {},
            "drainSeconds": 0,
            "policy": {"name": "ready-handover", "knobs": {}},
        }
        leaves = {"config": json.dumps(config), "target": str(size), "wishes": "{}"}
        self.set(
            group, health=settings.dumps(HealthSettings(daily_report_hour=settings.NO_DAILY_REPORT)), **leaves
        )
        ids = [f"i-{len(self.instances) + n:017x}" for n in range(size)]
        for instance_id in ids:
            self.add_instance(
                f"{group}-primary", instance_id, spot=True, launched=self.now - age, heartbeat=None
            )
            tags = {names.TAG_STACK: "dev", names.TAG_GROUP: group, names.TAG_GROUP_ROLE: "primary"}
            self.instances[instance_id]["Tags"] += [
                {"Key": key, "Value": value} for key, value in tags.items()
            ]
            self.row(
                Worker(
                    partition(instance_id, group),
                    instance_id,
                    0,
                    self.now - age + 120,
                    self.now - 5,
                    "ready",
                    report=REPORT,
                )
            )
        return ids

    def set(self, group: str, **leaves: str) -> None:
        self.parameters |= {f"{ROOT}/{group}/{leaf}": text for leaf, text in leaves.items()}

    def row(self, worker: Worker) -> None:
        """Write a worker's registry item."""
        item = registry_item.dump(worker)
        self.rows.setdefault(worker.partition, {})[item[names.REGISTRY_SORT_KEY]["S"]] = item

    def add_hosts(self, group: str, slots: dict[str, int]) -> None:
        """Add on-premises hosts to the group's configuration."""
        config = json.loads(self.parameters[f"{ROOT}/{group}/config"])
        self.set(group, config=json.dumps({**config, "onPremisesHosts": slots}))

    def change(self, group: str, instance: str, change: Callable[[Worker], Worker]) -> None:
        """Change the registry item of an instance's worker."""
        self.row(change(registry_item.parse(self.rows[partition(instance, group)][f"{instance}/0"])))

    def send_heartbeats(self, excluded: frozenset[str] = frozenset()) -> None:
        """Let every worker send a heartbeat and complete requests, except on excluded instances."""
        for rows in self.rows.values():
            for row in rows.values():
                if "pulse" in row and row["instance"]["S"] not in excluded:
                    row["heartbeat"] = {"N": str(self.now - 5)}
                    row["pulse"]["M"]["done"] = {"N": str(int(self.now - NOW + 100))}
                    row["pulse"]["M"]["at"] = {"N": str(self.now - 5)}

    def replacement_requests(self, group: str = GROUP) -> dict[str, Any]:
        requests: dict[str, Any] = json.loads(self.parameters[f"{ROOT}/{group}/wishes"])
        return requests

    def checker(self) -> HealthChecker:
        return build(self.client, PLACE, lambda: self.now)

    def client(self, service: str) -> Any:
        client = super().client(service) if service != "sns" else _Nothing()
        for name in _MORE.get(service, ()):
            setattr(client, name, self._counted(service, name))
        return client

    def _list_describe_instances(self, Filters: list[dict[str, Any]], PaginationConfig: Any) -> Any:
        filters = {item["Name"]: item["Values"] for item in Filters}
        assert filters.keys() == {"tag:gpu-spot:stack", "instance-state-name"}
        instances = [
            i for i in self.instances.values() if i["State"]["Name"] in filters["instance-state-name"]
        ]
        return "Reservations", instances, lambda page: [{"Instances": [i]} for i in page]

    def _registry_items(self) -> list[dict[str, Any]]:
        rows = (row for rows in self.rows.values() for row in rows.values())
        return [row for row in rows if names.REGISTRY_KEY in row]

    def _describe_auto_scaling_instances(self, InstanceIds: list[str]) -> Any:
        instances = [
            {
                "InstanceId": instance_id,
                "LifecycleState": self.states.get(instance_id, "InService"),
                "HealthStatus": "HEALTHY",
            }
            for instance_id in InstanceIds
            if instance_id in self.instances
        ]
        return {"AutoScalingInstances": instances}

    def _get_item(self, Key: Any, **more: Any) -> Any:
        if more["TableName"] == "memory":
            return super()._get_item(Key, **more)
        item = self.rows.get(Key["group"]["S"], {}).get(Key["worker"]["S"])
        return {"Item": item} if item else {}

    def _update_item(self, Key: Any, ExpressionAttributeValues: Any, **_: Any) -> None:
        row = self.rows.get(Key["group"]["S"], {}).get(Key["worker"]["S"])
        if row is None:
            raise ClientError({"Error": {"Code": "ConditionalCheckFailedException"}}, "UpdateItem")
        row["restart"] = ExpressionAttributeValues[":now"]

    def _put_item(self, Item: Any, **more: Any) -> None:
        stored = self.memory.get(Item["group"]["S"])
        if stored is not None and "N" not in stored["version"]:
            self.memory.pop(Item["group"]["S"])  # a malformed version may be overwritten
        super()._put_item(Item, **more)

    def _put_parameter(self, Name: str, Value: str, Type: str, Overwrite: bool) -> None:
        assert (Type, Overwrite) == ("String", True)
        self.parameters[Name] = Value

    def _publish(self, TopicArn: str, Subject: str, Message: str) -> None:
        if TopicArn in self.refused:
            raise ClientError({"Error": {"Code": "AuthorizationError"}}, "Publish")
        self.messages.append((Subject, Message))


class _Nothing:
    """A client of a service that the controller does not call."""


def with_report(worker: Worker, **changes: Any) -> Worker:
    """Return a worker with a changed report."""
    assert worker.report is not None
    return replace(worker, report=replace(worker.report, **changes))
