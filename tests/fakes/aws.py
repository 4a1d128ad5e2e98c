"""An in-memory double of the AWS calls of the functions, which pages as AWS does and counts the calls.

moto launches instances for Auto Scaling groups by itself and has no pages of 1,000; here tests set the state.
"""

# ruff: noqa: N803 - boto3's own argument names

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from contracts import names
from contracts.group import health_settings
from contracts.group.health_settings import HealthSettings
from contracts.registry import item as registry_item
from contracts.registry.item import Worker, WorkerState
from contracts.registry.worker_report import WorkerReport
from lambdas.aws.health.checker import HealthChecker, build
from lambdas.aws.hosts import tag
from lambdas.aws.passes import StackResources
from lambdas.core.events import WakeUp, parse
from tests import models

PAGE = {
    "describe_instances": 1000,
    "describe_spot_fleet_instances": 1000,
    "batch_get_item": 100,
    "get_parameters_by_path": 10,
}

NOW = 1_767_571_200.0 + 8 * 3600
ROOT = "/gpu-spot/dev/groups"
GROUP = "inference"
ARNS = registry_item.instance_arns("aws", "us-west-2", "123456789012")
PLACE = StackResources("dev", ROOT, "memory", "registry", ARNS, "arn:aws:sns:us-west-2:123456789012:alarms")
REPORT = WorkerReport("sha256:1", gpu="GPU-1", reported_at=NOW, done=100, rate=1.0, gpu_use=70.0)


def partition(instance: str, group: str = GROUP) -> str:
    """Return the registry's partition of an instance."""
    return registry_item.partition(group, ARNS + instance)


def worker(
    instance: str, since: float, heartbeat: float, state: WorkerState = "ready", slot: int = 0, **more: Any
) -> Worker:
    return Worker(partition(instance), instance, slot, since, heartbeat, state, **more)


def config(**changes: Any) -> str:
    return json.dumps(
        {
            "kind": "mixed-asg",
            "primary": "primary",
            "fallback": "fallback",
            "base": 0,
            "spotPercentage": 100,
            "max": 8,
            "slots": {},
            "drainSeconds": 0,
            "policy": {"name": "ready-handover", "parameters": {}},
            **changes,
        }
    )


def tags(group: str) -> list[dict[str, str]]:
    """Return the tags of a group's instances."""
    values = {names.TAG_STACK: "dev", names.TAG_GROUP: group, names.TAG_GROUP_ROLE: "primary"}
    return [{"Key": key, "Value": value} for key, value in values.items()]


def member(instance: str, state: str = "InService", *, protected: bool) -> dict[str, Any]:
    """Return an instance as its group lists it."""
    return {
        **{"InstanceId": instance, "InstanceType": "g5.xlarge", "AvailabilityZone": "us-west-2a"},
        **{"HealthStatus": "Healthy", "LifecycleState": state, "ProtectedFromScaleIn": protected},
    }


def description(
    instance: str, launched: float, group: str, *, spot: bool, state: str = "running"
) -> dict[str, Any]:
    """Return an instance as EC2 describes it."""
    return {
        **{"InstanceId": instance, "InstanceType": "g5.xlarge", "State": {"Name": state}},
        "Placement": {"AvailabilityZone": "us-west-2a"},
        "LaunchTime": datetime.fromtimestamp(launched, UTC),
        "Tags": tags(group),
        **({"InstanceLifecycle": "spot"} if spot else {}),
    }


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    return item[names.REGISTRY_KEY]["S"], item[names.REGISTRY_SORT_KEY]["S"]


@dataclass
class FakeAws:
    """State by name; ``calls`` counts every API call, pages too.

    The registry's items are ``slots`` and ``rows``, these by partition and worker. The next ``throttled``
    calls of a name fail, and each in ``failures``; the next ``unprocessed`` batches miss an item;
    ``hidden`` instances are members that EC2 does not describe; ``refused`` topics take no messages.
    """

    parameters: dict[str, str] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    instances: dict[str, dict[str, Any]] = field(default_factory=dict)
    slots: list[dict[str, Any]] = field(default_factory=list)
    fleets: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    spot_prices: dict[tuple[str, str], str] = field(default_factory=dict)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    delayed: list[int] = field(default_factory=list)
    interrupted: dict[str, float] = field(default_factory=dict)
    interruption_code: str = "instance-terminated-no-capacity"
    activities: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    memory: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    throttled: Counter[str] = field(default_factory=Counter)
    hidden: set[str] = field(default_factory=set)
    hidden_for: dict[str, int] = field(default_factory=dict)
    full_zones: set[str] = field(default_factory=set)
    unprocessed: int = 0
    name: str = GROUP
    now: float = NOW
    rows: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    messages: list[tuple[str, str]] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    failures: dict[str, Exception] = field(default_factory=dict)

    def remember(self, text: str, group: str = GROUP) -> None:
        """Store the memory of a group's controller, as it writes it."""
        self.memory[group] = {"group": {"S": group}, "version": {"N": "1"}, "memory": {"S": text}}

    def add_group(self, name: str, desired: int = 0) -> None:
        self.groups[name] = {"AutoScalingGroupName": name, "DesiredCapacity": desired, "Instances": []}

    def add_fleet(self, name: str, target: int, on_demand: int = 0) -> None:
        self.fleets[name] = {
            "SpotFleetRequestId": name,
            "SpotFleetRequestState": "active",
            "SpotFleetRequestConfig": {"TargetCapacity": target, "OnDemandTargetCapacity": on_demand},
        }

    def add_instance(
        self,
        group: str,
        instance_id: str,
        *,
        spot: bool,
        launched: float,
        heartbeat: float | None,
        since: float = 0.0,
        state: WorkerState = "ready",
    ) -> None:
        members = self.groups.setdefault(group, {"Instances": []})["Instances"]
        members.append(member(instance_id, protected=True))
        self.instances[instance_id] = description(instance_id, launched, self.name, spot=spot)
        self.instances[instance_id]["_group"] = group
        if heartbeat is not None:
            item = Worker(
                partition(instance_id, self.name), instance_id, 0, since or heartbeat, heartbeat, state
            )
            self.slots.append(registry_item.dump(item))

    def add(self, size: int, group: str = GROUP, age: float = 7200.0) -> list[str]:
        """Add a group of instances with healthy workers; return their ids."""
        text = config(primary=f"{group}-primary", fallback=f"{group}-fallback", max=2 * size)
        leaves = {"config": text, "target": str(size), "replacements": "{}"}
        health = health_settings.dumps(HealthSettings(daily_report_hour=health_settings.NO_DAILY_REPORT))
        self.set(group, health=health, **leaves)
        ids = [f"i-{len(self.instances) + n:017x}" for n in range(size)]
        for instance_id in ids:
            self.add_instance(
                f"{group}-primary", instance_id, spot=True, launched=self.now - age, heartbeat=None
            )
            self.instances[instance_id]["Tags"] = tags(group)
            at = self.now - age + 120, self.now - 5
            self.row(Worker(partition(instance_id, group), instance_id, 0, *at, "ready", report=REPORT))
        return ids

    def set(self, group: str = GROUP, **leaves: str) -> None:
        self.parameters |= {f"{ROOT}/{group}/{leaf}": text for leaf, text in leaves.items()}

    def row(self, worker: Worker) -> None:
        """Write a worker's registry item."""
        item = registry_item.dump(worker)
        self.rows.setdefault(worker.partition, {})[item[names.REGISTRY_SORT_KEY]["S"]] = item

    def add_hosts(self, group: str, slots: dict[str, int]) -> None:
        former = json.loads(self.parameters[f"{ROOT}/{group}/config"])
        self.set(group, config=json.dumps({**former, "onPremisesHosts": slots}))

    def change(self, group: str, instance: str, change: Callable[[Worker], Worker]) -> None:
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
        requests: dict[str, Any] = json.loads(self.parameters[f"{ROOT}/{group}/replacements"])
        return requests

    def checker(self) -> HealthChecker:
        return build(self.client, PLACE, lambda: self.now)

    def client(self, service: str) -> Any:
        """Return a client: every public method of this class that the service has, counted."""
        return SimpleNamespace(
            get_paginator=lambda name: self._paginator(service, name),
            exceptions=SimpleNamespace(),
            **{name: self._counted(service, name) for name in _METHODS[service]},
        )

    def _counted(self, service: str, name: str) -> Any:
        def call(**kwargs: Any) -> Any:
            models.check(service, name, kwargs)
            self._called(name)
            return getattr(self, f"_{name}")(**kwargs)

        return call

    def _called(self, name: str) -> None:
        self.calls[name] += 1
        if self.throttled[name]:
            self.throttled[name] -= 1
            raise ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, name)
        if name in self.failures:
            raise self.failures[name]

    def _paginator(self, service: str, name: str) -> Any:
        return SimpleNamespace(paginate=lambda **kwargs: self._pages(service, name, kwargs))

    def _pages(self, service: str, name: str, kwargs: dict[str, Any]) -> Iterator[Any]:
        models.check(
            service, name, {key: value for key, value in kwargs.items() if key != "PaginationConfig"}
        )
        key, items, wrap = getattr(self, f"_list_{name}")(**kwargs)
        size = PAGE.get(name, 100)
        for start in range(0, max(1, len(items)), size):
            self._called(name)
            yield {key: wrap(items[start : start + size])}

    # Paged calls. Each returns the key of the response, all items, and the format of a page.

    def _list_get_parameters_by_path(self, Path: str, Recursive: bool) -> Any:
        found = [
            {"Name": k, "Value": v} for k, v in sorted(self.parameters.items()) if k.startswith(f"{Path}/")
        ]
        return "Parameters", found, list

    def _list_describe_auto_scaling_groups(self, AutoScalingGroupNames: list[str], **_: Any) -> Any:
        assert len(AutoScalingGroupNames) <= 100
        return "AutoScalingGroups", [self.groups[n] for n in AutoScalingGroupNames if n in self.groups], list

    def _list_describe_instances(self, Filters: list[dict[str, Any]], PaginationConfig: Any) -> Any:
        filters = {f["Name"]: f["Values"] for f in Filters}
        assert filters.keys() & {"tag:gpu-spot:group", "instance-state-name"}
        assert filters["tag:gpu-spot:stack"] == ["dev"]
        states = filters.get("instance-state-name")
        groups = filters.get("tag:gpu-spot:group")
        assert groups is None or len(groups) <= 200
        shown = [i for name, i in self.instances.items() if name not in self.hidden]
        found = [
            i
            for i in shown
            if (states is None or i["State"]["Name"] in states)
            and (groups is None or tag(i, names.TAG_GROUP) in groups)
        ]
        return "Reservations", found, lambda page: [{"Instances": [i]} for i in page]

    def _list_describe_spot_instance_requests(self, Filters: Any, PaginationConfig: Any) -> Any:
        (codes,) = (f["Values"] for f in Filters if f["Name"] == "status-code")
        found = [
            {
                "InstanceId": i,
                "Status": {"Code": self.interruption_code, "UpdateTime": datetime.fromtimestamp(at, UTC)},
            }
            for i, at in self.interrupted.items()
            if self.interruption_code in codes
        ]
        return "SpotInstanceRequests", found, list

    def _list_describe_spot_price_history(
        self,
        InstanceTypes: list[str],
        ProductDescriptions: list[str],
        Filters: list[dict[str, Any]],
        StartTime: datetime,
        EndTime: datetime,
    ) -> Any:
        assert StartTime == EndTime
        (zones,) = (f["Values"] for f in Filters if f["Name"] == "availability-zone")
        found = [
            {
                **{"InstanceType": kind, "AvailabilityZone": zone},
                **{"ProductDescription": product, "SpotPrice": price},
            }
            for (kind, zone), price in self.spot_prices.items()
            for product in ProductDescriptions
            if kind in InstanceTypes and zone in zones
        ]
        return "SpotPriceHistory", found, list

    def _list_describe_spot_fleet_instances(self, SpotFleetRequestId: str) -> Any:
        found = [i for i in self.instances.values() if i["_group"] == SpotFleetRequestId]
        return "ActiveInstances", found, list

    # Single calls.

    def _describe_instances(self, Filters: list[dict[str, Any]]) -> Any:
        (ids,) = (f["Values"] for f in Filters if f["Name"] == "instance-id")
        return {"Reservations": [{"Instances": [i for n, i in self.instances.items() if n in ids]}]}

    def _send_message(self, QueueUrl: str, MessageBody: str, DelaySeconds: int) -> None:
        assert QueueUrl == "queue"
        assert parse(json.loads(MessageBody)) == WakeUp("gpu-spot Wake-up")
        self.delayed.append(DelaySeconds)

    def _change_message_visibility_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> None:
        assert QueueUrl == "queue"
        assert len(Entries) <= 10
        self.hidden_for |= {entry["ReceiptHandle"]: entry["VisibilityTimeout"] for entry in Entries}

    def _describe_spot_fleet_requests(self, SpotFleetRequestIds: list[str]) -> Any:
        return {"SpotFleetRequestConfigs": [self.fleets[n] for n in SpotFleetRequestIds if n in self.fleets]}

    def _describe_spot_fleet_request_history(self, StartTime: datetime, EventType: str, **_: Any) -> Any:
        assert EventType == "error"
        return {"HistoryRecords": [r for r in self.history if r["Timestamp"] >= StartTime]}

    def _modify_spot_fleet_request(
        self,
        SpotFleetRequestId: str,
        TargetCapacity: int,
        OnDemandTargetCapacity: int,
        ExcessCapacityTerminationPolicy: str,
    ) -> None:
        assert ExcessCapacityTerminationPolicy == "noTermination"
        self.fleets[SpotFleetRequestId]["SpotFleetRequestConfig"] = {
            "TargetCapacity": TargetCapacity,
            "OnDemandTargetCapacity": OnDemandTargetCapacity,
        }

    def _describe_capacity_reservations(self, CapacityReservationIds: list[str]) -> Any:
        return {"CapacityReservations": [self.reservations[block] for block in CapacityReservationIds]}

    def _terminate_instances(self, InstanceIds: list[str]) -> None:
        for instance_id in InstanceIds:
            del self.instances[instance_id]

    def _describe_scaling_activities(self, AutoScalingGroupName: str, MaxRecords: int) -> Any:
        return {"Activities": self.activities.get(AutoScalingGroupName, [])[:MaxRecords]}

    def _set_desired_capacity(
        self, AutoScalingGroupName: str, DesiredCapacity: int, HonorCooldown: bool
    ) -> None:
        group = self.groups[AutoScalingGroupName]
        group["DesiredCapacity"] = DesiredCapacity
        open_to_it = [m for m in group["Instances"] if not m["ProtectedFromScaleIn"]]
        for member in open_to_it[: max(0, len(group["Instances"]) - DesiredCapacity)]:
            group["Instances"].remove(member)
            del self.instances[member["InstanceId"]]

    def _launch_instances(
        self,
        AutoScalingGroupName: str,
        RequestedCapacity: int,
        AvailabilityZones: list[str],
        ClientToken: str,
        RetryStrategy: str,
    ) -> Any:
        retries = RetryStrategy == "retry-with-group-configuration"
        assert retries or RetryStrategy == "none"
        group, (zone,) = self.groups[AutoScalingGroupName], AvailabilityZones
        group["DesiredCapacity"] += RequestedCapacity * (retries or zone not in self.full_zones)
        if zone in self.full_zones:
            error = {"ErrorCode": "InsufficientInstanceCapacity", "ErrorMessage": f"no capacity in {zone}"}
            return {"Instances": [], "Errors": [error]}
        for _ in range(RequestedCapacity):
            self.add_instance(AutoScalingGroupName, f"i-in-{zone}", spot=False, launched=0.0, heartbeat=None)
        return {"Instances": [{"AvailabilityZone": zone, "InstanceIds": [f"i-in-{zone}"]}], "Errors": []}

    def _set_instance_protection(
        self, AutoScalingGroupName: str, InstanceIds: list[str], ProtectedFromScaleIn: bool
    ) -> None:
        for member in self.groups[AutoScalingGroupName]["Instances"]:
            if member["InstanceId"] in InstanceIds:
                member["ProtectedFromScaleIn"] = ProtectedFromScaleIn

    def _terminate_instance_in_auto_scaling_group(
        self, InstanceId: str, ShouldDecrementDesiredCapacity: bool
    ) -> None:
        if InstanceId not in self.instances:
            message = f"Instance Id not found - No managed instance found: {InstanceId}"
            error = {"Error": {"Code": "ValidationError", "Message": message}}
            raise ClientError(error, "TerminateInstanceInAutoScalingGroup")
        group = self.groups[self.instances.pop(InstanceId)["_group"]]
        group["Instances"] = [i for i in group["Instances"] if i["InstanceId"] != InstanceId]
        group["DesiredCapacity"] -= ShouldDecrementDesiredCapacity

    def _get_item(self, TableName: str, Key: Any, ConsistentRead: bool = False) -> Any:
        if TableName == "memory":
            item = self.memory.get(Key["group"]["S"])
        else:
            item = self.rows.get(Key["group"]["S"], {}).get(Key["worker"]["S"])
            assert ConsistentRead or "releases" not in (item or {})  # written before the request for restarts
        return {"Item": item} if item else {}

    def _batch_get_item(self, RequestItems: Any) -> Any:
        [(table, request)] = RequestItems.items()
        keys, unprocessed = request["Keys"], []
        assert len(keys) <= 100
        if table == "memory":
            assert request["ConsistentRead"]
            return {"Responses": {table: [i for k in keys if (i := self.memory.get(k["group"]["S"]))]}}
        assert len({_key(key) for key in keys}) == len(keys)
        if self.unprocessed:
            self.unprocessed -= 1
            keys, unprocessed = keys[1:], keys[:1]
        slots = {_key(item): item for item in self.slots}
        items = ((slots.get(_key(k)) or self.rows.get(_key(k)[0], {}).get(_key(k)[1]), k) for k in keys)
        return {
            "Responses": {table: [{**key, **item} for item, key in items if item]},
            "UnprocessedKeys": {table: {"Keys": unprocessed}} if unprocessed else {},
        }

    def _put_item(self, Item: Any, *, TableName: str, **more: Any) -> None:
        group = Item["group"]["S"]
        if TableName != "memory":
            self.rows.setdefault(group, {})[Item["worker"]["S"]] = Item
            return
        stored = self.memory.get(group, {}).get("version", {})  # a malformed version may be overwritten
        if "N" in stored and stored != more["ExpressionAttributeValues"][":v"]:
            raise ClientError({"Error": {"Code": "ConditionalCheckFailedException"}}, "PutItem")
        self.memory[group] = Item

    def _update_item(self, Key: Any, ExpressionAttributeValues: Any, **_: Any) -> None:
        row = self.rows.get(Key["group"]["S"], {}).get(Key["worker"]["S"])
        if error := self.failures.get(f"update_item {Key['worker']['S']}"):
            raise error
        if row is None:
            raise ClientError({"Error": {"Code": "ConditionalCheckFailedException"}}, "UpdateItem")
        row["restart"] = ExpressionAttributeValues[":now"]

    def _put_parameter(self, Name: str, Value: str, Type: str, Overwrite: bool) -> None:
        assert (Type, Overwrite) == ("String", True)
        self.parameters[Name] = Value

    def _publish(self, TopicArn: str, Subject: str, Message: str) -> None:
        if TopicArn in self.refused:
            raise ClientError({"Error": {"Code": "AuthorizationError"}}, "Publish")
        self.messages.append((Subject, Message))

    def _describe_auto_scaling_instances(self, InstanceIds: list[str]) -> Any:
        states = {i: self.states.get(i, "InService") for i in InstanceIds if i in self.instances}
        rows = [{"InstanceId": i, "LifecycleState": s, "HealthStatus": "HEALTHY"} for i, s in states.items()]
        return {"AutoScalingInstances": rows}


_METHODS = {
    "cloudwatch": ("get_metric_data",),
    "sns": ("publish",),
    "ssm": ("put_parameter",),
    "sqs": ("send_message", "change_message_visibility_batch"),
    "ec2": (
        "describe_instances",
        "describe_spot_fleet_requests",
        "describe_spot_fleet_request_history",
        "describe_capacity_reservations",
        "modify_spot_fleet_request",
        "terminate_instances",
    ),
    "autoscaling": (
        "describe_auto_scaling_instances",
        "describe_scaling_activities",
        "launch_instances",
        "set_desired_capacity",
        "set_instance_protection",
        "terminate_instance_in_auto_scaling_group",
    ),
    "dynamodb": ("batch_get_item", "get_item", "put_item", "update_item"),
}
