"""The AWS calls of the health checker, answered from memory as in ``tests.lambdas.fake_aws``, and counted."""

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
from contracts.registry.worker_report import Pulse
from lambdas.aws.health.checker import HealthChecker, HealthPlace, build
from tests.lambdas.fake_aws import FakeAws

NOW = 1_767_571_200.0 + 8 * 3600
ROOT = "/gpu-spot/dev/groups"
PLACE = HealthPlace("dev", ROOT, "memory", "registry", "arn:aws:sns:us-west-2:123456789012:alarms")
GROUP = "inference"
PULSE = Pulse("sha256:1", gpu="GPU-1", at=NOW, done=100, rate=1.0, gpu_use=70.0)
_MORE = {
    "ssm": ("put_parameter",),
    "autoscaling": ("describe_auto_scaling_instances",),
    "dynamodb": ("get_item", "put_item", "update_item"),
    "sns": ("publish",),
}


@dataclass
class HealthAws(FakeAws):
    """State by name; ``rows`` are the registry's items by partition and worker, ``messages`` what is told."""

    now: float = NOW
    rows: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    messages: list[tuple[str, str]] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def add(self, size: int, group: str = GROUP, age: float = 7200.0) -> list[str]:
        """Add a group of so many instances whose workers are well; return their ids."""
        known = {
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
        leaves = {"config": json.dumps(known), "target": str(size), "wishes": "{}"}
        self.set(group, health=settings.dumps(HealthSettings(digest=settings.NO_DIGEST)), **leaves)
        ids = [f"i-{len(self.instances) + n:017x}" for n in range(size)]
        for one in ids:
            self.add_instance(f"{group}-primary", one, spot=True, launched=self.now - age, heartbeat=None)
            tags = {names.TAG_STACK: "dev", names.TAG_GROUP: group, names.TAG_SIDE: "primary"}
            self.instances[one]["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
            self.row(Worker(group, one, 0, self.now - age + 120, self.now - 5, "ready", pulse=PULSE))
        return ids

    def set(self, group: str, **leaves: str) -> None:
        self.parameters |= {f"{ROOT}/{group}/{leaf}": text for leaf, text in leaves.items()}

    def row(self, worker: Worker) -> None:
        """Write a worker's row in the place of what stands there."""
        item = registry_item.dump(worker)
        self.rows.setdefault(worker.group, {})[item[names.REGISTRY_SORT_KEY]["S"]] = item

    def change(self, group: str, instance: str, how: Callable[[Worker], Worker]) -> None:
        """Change what the worker of an instance says."""
        self.row(how(registry_item.parse(self.rows[group][f"{instance}/0"])))

    def beat(self, but: frozenset[str] = frozenset()) -> None:
        """Let every worker beat and finish something, but those of some instances."""
        for rows in self.rows.values():
            for row in rows.values():
                if "pulse" in row and row["instance"]["S"] not in but:
                    row["heartbeat"] = {"N": str(self.now - 5)}
                    row["pulse"]["M"]["done"] = {"N": str(int(self.now - NOW + 100))}
                    row["pulse"]["M"]["at"] = {"N": str(self.now - 5)}

    def wishes(self, group: str = GROUP) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.parameters[f"{ROOT}/{group}/wishes"])
        return found

    def checker(self) -> HealthChecker:
        return build(self.client, PLACE, lambda: self.now)

    def client(self, service: str) -> Any:
        made = super().client(service) if service != "sns" else _Nothing()
        for name in _MORE.get(service, ()):
            setattr(made, name, self._counted(service, name))
        return made

    def _list_describe_instances(self, Filters: list[dict[str, Any]], PaginationConfig: Any) -> Any:
        wanted = {one["Name"]: one["Values"] for one in Filters}
        assert wanted.keys() == {"tag:gpu-spot:stack", "instance-state-name"}
        found = [i for i in self.instances.values() if i["State"]["Name"] in wanted["instance-state-name"]]
        return "Reservations", found, lambda page: [{"Instances": [i]} for i in page]

    def _list_query(self, ExpressionAttributeValues: Any, **_: Any) -> Any:
        return "Items", list(self.rows.get(ExpressionAttributeValues[":g"]["S"], {}).values()), list

    def _describe_auto_scaling_instances(self, InstanceIds: list[str]) -> Any:
        found = [
            {
                "InstanceId": one,
                "LifecycleState": self.states.get(one, "InService"),
                "HealthStatus": "HEALTHY",
            }
            for one in InstanceIds
            if one in self.instances
        ]
        return {"AutoScalingInstances": found}

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
            self.memory.pop(Item["group"]["S"])  # whoever comes may write over that
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


def told(worker: Worker, **changes: Any) -> Worker:
    """Return a worker with another pulse."""
    assert worker.pulse is not None
    return replace(worker, pulse=replace(worker.pulse, **changes))
