"""Clients with one changed operation, and changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import ClientOf

Call = Callable[..., dict[str, Any]]
Change = Callable[[Call, dict[str, Any]], dict[str, Any]]


@dataclass
class Faulty:
    """A proxy of a client with one changed operation."""

    client: Any
    operation: str
    change: Change

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.client, name)
        if name != self.operation:
            return operation
        return lambda *names, **arguments: self.change(operation, arguments)


def faulty(clients: ClientOf, fault: tuple[str, str, Change]) -> ClientOf:
    service, operation, change = fault
    client = Faulty(clients(service), operation, change)
    return lambda requested: client if requested == service else clients(requested)


@dataclass
class Recording:
    """A proxy of a client that records ``service:Operation`` of its calls."""

    service: str
    cloud: Any
    made: set[str]

    def __getattr__(self, name: str) -> Any:
        client = self.cloud.clients(self.service)
        operation = getattr(client, name)
        if api_name := client.meta.method_to_api_mapping.get(name):
            self.made.add(f"{self.service}:{api_name}")
        if name == "get_paginator":
            return lambda paged: (self.__getattr__(paged), operation(paged))[1]
        return operation


def skipped(answer: Mapping[str, Any] | None = None) -> Change:
    """The operation returns a response without effect."""
    return lambda call, given: dict(answer or {})


def refused(code: str, message: str = "") -> Change:
    def change(call: Call, given: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": code, "Message": message}}, "Operation")

    return change


def edited(edit: Callable[[dict[str, Any]], None]) -> Change:
    """The response is changed."""

    def change(call: Call, given: dict[str, Any]) -> dict[str, Any]:
        answer = copy.deepcopy(call(**given))
        edit(answer)
        return answer

    return change


def asked(**other: Any) -> Change:
    """The operation is called with other arguments."""
    return lambda call, given: call(**given | other)


def members(edit: Callable[[dict[str, Any]], None]) -> Change:
    """Every member of a group is changed in the response."""

    def edit_members(answer: dict[str, Any]) -> None:
        for member in answer["AutoScalingGroups"][0]["Instances"]:
            edit(member)

    return edited(edit_members)


def group(**shown: Any) -> Change:
    return edited(lambda answer: answer["AutoScalingGroups"][0].update(shown))


def fleet(edit: Callable[[dict[str, Any]], None]) -> Change:
    return edited(lambda answer: edit(answer["SpotFleetRequestConfigs"][0]))


ASG, EC2, SQS = "autoscaling", "ec2", "sqs"
TERMINATE = "terminate_instance_in_auto_scaling_group"
GROUPS, POOL = "describe_auto_scaling_groups", "describe_warm_pool"
ALLOWED = skipped({"EvaluationResults": [{"EvalDecision": "allowed"}]})
