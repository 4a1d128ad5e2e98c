"""What the health checker sees: instances, their workers' rows, workers on premises, the queue's row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contracts import names
from contracts.registry import queue_state as backlog
from contracts.registry.item import EXPIRES_AFTER_SECONDS, Worker
from contracts.registry.queue_state import Backlog
from lambdas.aws.budget import Budget
from lambdas.aws.registry import Registered, RegistryReader, deadline
from lambdas.aws.settings import SPOT_FLEET, GroupSettings
from lambdas.core.capacity.memory import Memory
from lambdas.core.health.model import WorkerHost
from lambdas.core.model import Side

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

_LIVE: Final = ("pending", "running")
_BATCH: Final = 50
"""Instances that one ``DescribeAutoScalingInstances`` takes."""
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}")
_IN_SERVICE: Final = "InService"


@dataclass(frozen=True, slots=True)
class Rows:
    """What the registry says of one group, and of its workers on premises; and of its queue."""

    instances: Registered
    elsewhere: Registered
    backlog: Backlog | None
    trouble: str = ""

    def is_heard(self, now: float) -> bool:
        """Tell whether one worker at least is heard."""
        rows = (self.instances.workers, self.elsewhere.workers)
        return any(w.is_fresh(now) for known in rows for workers in known.values() for w in workers)


@dataclass(frozen=True, slots=True)
class HostReader:
    """Sees the hosts of one stack through injected clients."""

    stack: str
    ec2: EC2Client
    autoscaling: AutoScalingClient
    dynamodb: DynamoDBClient
    registry: RegistryReader

    def instances(self, budget: Budget) -> dict[str, list[InstanceTypeDef]]:
        """Return the stack's instances that live, by group: one call for each 1,000 of all groups."""
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{names.TAG_STACK}", "Values": [self.stack]},
                {"Name": "instance-state-name", "Values": list(_LIVE)},
            ],
            PaginationConfig={"PageSize": 1000},
        )
        found: dict[str, list[InstanceTypeDef]] = {}
        for page in budget.pages("instances", pages):
            for instance in (one for reservation in page["Reservations"] for one in reservation["Instances"]):
                found.setdefault(_tag(instance, names.TAG_GROUP), []).append(instance)
        return found

    def rows(self, group: str, budget: Budget) -> Rows:
        """Return what is registered of a group; a queue that makes no sense is told as a trouble."""
        item = self.dynamodb.get_item(TableName=self.registry.table, Key=backlog.key(group)).get("Item")
        told, trouble = None, ""
        try:
            told = None if item is None else backlog.parse(item)
        except ValueError as error:
            trouble = str(error)
        return Rows(
            self.registry.read(group, budget),
            self.registry.elsewhere(group, budget),
            told,
            trouble,
        )

    def unfit(self, instance_ids: Sequence[str], fleet: frozenset[str]) -> dict[str, str]:
        """Return whom nobody may wish replaced, and why: who is not in service, in a group's own words.

        Whoever waits for a hook, stands by in a warm pool, or ends already is looked after by its group.
        ``fleet`` are members of a Spot Fleet, of whom no group knows.
        """
        asked = [one for one in instance_ids if one not in fleet]
        states: dict[str, str] = {}
        for start in range(0, len(asked), _BATCH):
            answer = self.autoscaling.describe_auto_scaling_instances(
                InstanceIds=asked[start : start + _BATCH]
            )
            for member in answer["AutoScalingInstances"]:
                healthy = member["HealthStatus"].upper() == "HEALTHY"
                states[member["InstanceId"]] = member["LifecycleState"] if healthy else "Unhealthy"
        found = {one: states.get(one, "in no group") for one in asked}
        return {one: state for one, state in found.items() if state != _IN_SERVICE}


def hosts(
    settings: GroupSettings,
    instances: Iterable[InstanceTypeDef],
    rows: Rows,
    memory: Memory,
    now: float,
    unfit: Mapping[str, str],
) -> tuple[WorkerHost, ...]:
    """Return a group's hosts; ``memory`` is the controller's, ``unfit`` who is known to be let alone."""
    found = [_instance(settings, one, rows.instances, memory, now, unfit) for one in instances]
    for name, workers in rows.elsewhere.workers.items():
        known = tuple(w for w in workers if now - w.heartbeat < EXPIRES_AFTER_SECONDS)
        # A machine that calls itself as an instance would stand for it.
        if known and not _INSTANCE.fullmatch(name):
            found.append(
                WorkerHost(name, known, spared=_drains(known), unclear=name in rows.elsewhere.unclear)
            )
    return tuple(found)


def in_fleet(settings: GroupSettings, instances: Iterable[InstanceTypeDef]) -> frozenset[str]:
    """Return the members of the group's Spot Fleet."""
    if settings.sides[Side.PRIMARY].kind != SPOT_FLEET:
        return frozenset()
    return frozenset(one["InstanceId"] for one in instances if _tag(one, names.TAG_SIDE) == Side.PRIMARY)


def _instance(
    settings: GroupSettings,
    instance: InstanceTypeDef,
    registry: Registered,
    memory: Memory,
    now: float,
    unfit: Mapping[str, str],
) -> WorkerHost:
    name = instance["InstanceId"]
    workers = tuple(registry.workers.get(name, ()))
    return WorkerHost(
        name,
        workers,
        settings.config.slots.get(instance["InstanceType"], 1),
        instance["LaunchTime"].timestamp(),
        spared=unfit.get(name, "") or _leaves(name, memory) or _drains(workers) or _doomed(workers, now),
        unclear=name in registry.unclear,
        spot=instance.get("InstanceLifecycle") == "spot",
    )


def _leaves(name: str, memory: Memory) -> str:
    for what, marked in (
        ("doomed", memory.doomed),
        ("released", memory.released),
        ("retiring", memory.retiring),
    ):
        if name in marked:
            return what
    return ""


def _drains(workers: tuple[Worker, ...]) -> str:
    return "draining" if any(worker.state == "draining" for worker in workers) else ""


def _doomed(workers: tuple[Worker, ...], now: float) -> str:
    return "" if deadline(list(workers), now) is None else "doomed"


def _tag(instance: InstanceTypeDef, key: str) -> str:
    return next((tag["Value"] for tag in instance.get("Tags", ()) if tag["Key"] == key), "")
