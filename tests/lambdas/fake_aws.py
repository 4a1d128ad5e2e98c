"""An in-memory double of the controller's AWS calls, which pages as AWS does and counts the calls.

moto launches instances for Auto Scaling groups by itself and has no pages of 1,000; here tests set the state.
"""

# ruff: noqa: N803 - boto3's own argument names

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from contracts import names
from contracts.registry import item as registry_item
from contracts.registry.item import Worker, WorkerState
from lambdas.core.events import WakeUp, parse
from tests import models

PAGE = {
    "describe_instances": 1000,
    "describe_spot_fleet_instances": 1000,
    "batch_get_item": 100,
    "get_parameters_by_path": 10,
}

ARNS = registry_item.instance_arns("aws", "us-west-2", "123456789012")


def partition(instance: str, group: str = "inference") -> str:
    """Return the registry's partition of an instance."""
    return registry_item.partition(group, ARNS + instance)


def worker(
    instance: str, since: float, heartbeat: float, state: WorkerState = "ready", slot: int = 0, **more: Any
) -> Worker:
    """Return a worker of the group ``inference``."""
    return Worker(partition(instance), instance, slot, since, heartbeat, state, **more)


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    return item[names.REGISTRY_KEY]["S"], item[names.REGISTRY_SORT_KEY]["S"]


@dataclass
class FakeAws:
    """State by name; ``calls`` counts every API call, pages too.

    The next ``throttled`` calls of a name fail, the next ``unprocessed`` batches miss an item; ``hidden``
    instances are members that EC2 does not describe.
    """

    parameters: dict[str, str] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    instances: dict[str, dict[str, Any]] = field(default_factory=dict)
    slots: list[dict[str, Any]] = field(default_factory=list)
    on_premises_items: list[dict[str, Any]] = field(default_factory=list)
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
    name: str = "inference"

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
        self.groups.setdefault(group, {"Instances": []})["Instances"].append(
            {
                "InstanceId": instance_id,
                "InstanceType": "g5.xlarge",
                "AvailabilityZone": "us-west-2a",
                "LifecycleState": "InService",
                "HealthStatus": "Healthy",
                "ProtectedFromScaleIn": True,
            }
        )
        self.instances[instance_id] = {
            "InstanceId": instance_id,
            "InstanceType": "g5.xlarge",
            "Placement": {"AvailabilityZone": "us-west-2a"},
            "State": {"Name": "running"},
            "LaunchTime": datetime.fromtimestamp(launched, UTC),
            "_group": group,
            "Tags": [{"Key": names.TAG_REGISTRY, "Value": names.REGISTRY_BY_WRITER}],
            **({"InstanceLifecycle": "spot"} if spot else {}),
        }
        if heartbeat is not None:
            item = Worker(
                partition(instance_id, self.name), instance_id, 0, since or heartbeat, heartbeat, state
            )
            self.slots.append(registry_item.dump(item))

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

    def _list_describe_auto_scaling_groups(self, AutoScalingGroupNames: list[str]) -> Any:
        return "AutoScalingGroups", [self.groups[n] for n in AutoScalingGroupNames if n in self.groups], list

    def _list_describe_instances(self, Filters: list[dict[str, Any]], PaginationConfig: Any) -> Any:
        tags = {f["Name"]: f["Values"] for f in Filters if f["Name"].startswith("tag:")}
        assert tags.keys() == {"tag:gpu-spot:stack", "tag:gpu-spot:group"}
        assert tags["tag:gpu-spot:stack"] == ["dev"]
        found = [i for name, i in self.instances.items() if name not in self.hidden]
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
                "InstanceType": kind,
                "AvailabilityZone": zone,
                "ProductDescription": product,
                "SpotPrice": price,
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
        assert RetryStrategy == "retry-with-group-configuration"
        group, (zone,) = self.groups[AutoScalingGroupName], AvailabilityZones
        group["DesiredCapacity"] += RequestedCapacity
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
            raise ClientError(
                {
                    "Error": {
                        "Code": "ValidationError",
                        "Message": f"Instance Id not found - No managed instance found: {InstanceId}",
                    }
                },
                "TerminateInstanceInAutoScalingGroup",
            )
        group = self.groups[self.instances.pop(InstanceId)["_group"]]
        group["Instances"] = [i for i in group["Instances"] if i["InstanceId"] != InstanceId]
        group["DesiredCapacity"] -= ShouldDecrementDesiredCapacity

    def _get_item(self, Key: Any, **_: Any) -> Any:
        item = self.memory.get(Key["group"]["S"])
        return {"Item": item} if item else {}

    def _batch_get_item(self, RequestItems: Any) -> Any:
        [(table, request)] = RequestItems.items()
        assert len(request["Keys"]) <= 100
        stored = {_key(item): item for item in self._registry_items()}
        keys, unprocessed = request["Keys"], []
        if self.unprocessed:
            self.unprocessed -= 1
            keys, unprocessed = keys[1:], keys[:1]
        found = [stored[_key(key)] for key in keys if _key(key) in stored]
        return {
            "Responses": {table: found},
            "UnprocessedKeys": {table: {"Keys": unprocessed}} if unprocessed else {},
        }

    def _registry_items(self) -> list[dict[str, Any]]:
        return [*self.slots, *self.on_premises_items]

    def _put_item(self, Item: Any, ExpressionAttributeValues: Any, **_: Any) -> None:
        stored = self.memory.get(Item["group"]["S"])
        if stored is not None and stored["version"] != ExpressionAttributeValues[":v"]:
            raise ClientError({"Error": {"Code": "ConditionalCheckFailedException"}}, "PutItem")
        self.memory[Item["group"]["S"]] = Item


_METHODS = {
    "cloudwatch": ("get_metric_data",),
    "ssm": (),
    "sqs": ("send_message", "change_message_visibility_batch"),
    "ec2": (
        "describe_spot_fleet_requests",
        "describe_spot_fleet_request_history",
        "describe_capacity_reservations",
        "modify_spot_fleet_request",
        "terminate_instances",
    ),
    "autoscaling": (
        "describe_scaling_activities",
        "launch_instances",
        "set_desired_capacity",
        "set_instance_protection",
        "terminate_instance_in_auto_scaling_group",
    ),
    "dynamodb": ("batch_get_item", "get_item", "put_item"),
}
