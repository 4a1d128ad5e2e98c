"""Reads the hosts of a service: instances and on-premises machines, their workers, and the queue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from contracts import names
from contracts.registry import http_state, queue_state
from contracts.registry.http_state import HttpState
from contracts.registry.item import EXPIRES_AFTER_SECONDS, Worker
from contracts.registry.queue_state import QueueState
from lambdas.aws.budget import Budget
from lambdas.aws.items import Item
from lambdas.aws.registry import RegisteredWorkers, RegistryReader, deadline, on_premises_keys
from lambdas.aws.settings import SPOT_FLEET, GroupSettings, ParameterError, parse
from lambdas.core.capacity.memory import Memory
from lambdas.core.health.model import WorkerHost
from lambdas.core.model import GroupRole
from lambdas.core.queues.worker_requests import with_requests

if TYPE_CHECKING:
    from mypy_boto3_autoscaling import AutoScalingClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

StateT = TypeVar("StateT")

_LIVE: Final = ("pending", "running")
_MAX_BATCH: Final = 50
"""Maximum instances in a ``DescribeAutoScalingInstances`` call."""
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}")
_IN_SERVICE: Final = "InService"


@dataclass(frozen=True, slots=True)
class RegistrySnapshot:
    """The registry's items of a group: workers on instances and on premises, and the state of its queue.

    ``http`` are the requests at its proxies, ``has_http`` whether it has any.
    """

    instances: RegisteredWorkers
    on_premises: RegisteredWorkers
    queue: QueueState | None
    queue_error: str = ""
    http: HttpState | None = None
    http_error: str = ""
    has_http: bool = False

    @property
    def errors(self) -> list[str]:
        """What is malformed, each in one line."""
        malformed = self.instances.malformed_items + self.on_premises.malformed_items
        items = [f"{malformed} malformed items in the worker registry"] if malformed else []
        return [*items, *(error for error in (self.queue_error, self.http_error) if error)]

    def are_requests_unknown(self, now: float) -> bool:
        """Return whether requests at a proxy are unknown."""
        state = self.http
        return self.has_http and (state is None or not state.is_fresh(now) or state.unreadable > 0)

    def longest_queue(self, now: float) -> QueueState | None:
        """Return where more requests wait, at the proxies or in the queue, of what is known and fresh."""
        states = (self.queue, None if self.http is None else self.http.queue)
        fresh = [state for state in states if state is not None and state.is_fresh(now)]
        return max(fresh, key=lambda state: state.ready, default=self.queue)

    def has_fresh_worker(self, now: float) -> bool:
        """Return whether any worker reports."""
        by_origin = (self.instances.workers, self.on_premises.workers)
        return any(w.is_fresh(now) for hosts in by_origin for workers in hosts.values() for w in workers)


@dataclass(frozen=True, slots=True)
class HostReader:
    """Reads the hosts of a stack."""

    stack: str
    ec2: EC2Client
    autoscaling: AutoScalingClient
    registry: RegistryReader

    def instances(self, budget: Budget) -> dict[str, list[InstanceTypeDef]]:
        """Return the stack's pending and running instances by group: a call per 1,000 instances."""
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{names.TAG_STACK}", "Values": [self.stack]},
                {"Name": "instance-state-name", "Values": list(_LIVE)},
            ],
            PaginationConfig={"PageSize": 1000},
        )
        instances: dict[str, list[InstanceTypeDef]] = {}
        for page in budget.pages("instances", pages):
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    instances.setdefault(tag(instance, names.TAG_GROUP), []).append(instance)
        return instances

    def prefetched(
        self,
        services: Mapping[str, Mapping[str, str]],
        instances: Mapping[str, Sequence[InstanceTypeDef]],
        budget: Budget,
    ) -> HostReader:
        """Return a reader that has read the registry's items of services at once: a call per 100.

        ``services`` are their parameters; those of a service with invalid ones are read with it.
        """
        keys: list[Item] = []
        for name, texts in services.items():
            with suppress(ParameterError):
                settings = parse(name, {**texts, names.PARAMETER_TARGET: "0"})
                config = settings.group.config
                keys += [queue_state.key(name), *([http_state.key(name)] if config.http_concurrency else [])]
                keys += self.registry.keys(name, _slots(settings, instances.get(name, ())))
                keys += on_premises_keys(name, config.on_premises_hosts)
        return replace(self, registry=self.registry.prefetched(keys, budget))

    def read_registry(
        self, settings: GroupSettings, instances: Iterable[InstanceTypeDef], budget: Budget, now: float
    ) -> RegistrySnapshot:
        """Return the items of a group with these instances, and of its queue, at ``now`` (epoch seconds).

        A malformed item is returned as ``queue_error`` or ``http_error``. Workers that are HTTP servers have
        the requests that the proxies counted.
        """
        group, config = settings.group.name, settings.group.config
        queue, queue_error = self._parsed(queue_state.key(group), queue_state.parse, budget)
        snapshot = RegistrySnapshot(
            self.registry.read(group, _slots(settings, instances), budget),
            self.registry.read_on_premises(group, config.on_premises_hosts, budget),
            queue,
            queue_error,
        )
        concurrency = config.http_concurrency
        if not concurrency:
            return snapshot
        http, http_error = self._parsed(http_state.key(group), http_state.parse, budget)
        snapshot = replace(snapshot, http=http, http_error=http_error, has_http=True)
        if http is None or not http.is_fresh(now):
            return snapshot

        def filled(registered: RegisteredWorkers) -> RegisteredWorkers:
            return replace(registered, workers=with_requests(registered.workers, http, concurrency))

        return replace(
            snapshot, instances=filled(snapshot.instances), on_premises=filled(snapshot.on_premises)
        )

    def _parsed(
        self, key: Item, parse: Callable[[Item], StateT], budget: Budget
    ) -> tuple[StateT | None, str]:
        """Return an item's value, None without an item, and why it is malformed."""
        item = next(self.registry.items([key], budget), None)
        try:
            return None if item is None else parse(item), ""
        except ValueError as error:
            return None, str(error)

    def not_in_service(self, instance_ids: Sequence[str], fleet: frozenset[str]) -> dict[str, str]:
        """Return the instances that must not be replaced, with their lifecycle state or ``Unhealthy``.

        The Auto Scaling group handles instances that wait for a hook, are in its warm pool or terminate.
        ``fleet``: members of a Spot Fleet, which belong to no Auto Scaling group.
        """
        members = [instance_id for instance_id in instance_ids if instance_id not in fleet]
        states: dict[str, str] = {}
        for start in range(0, len(members), _MAX_BATCH):
            response = self.autoscaling.describe_auto_scaling_instances(
                InstanceIds=members[start : start + _MAX_BATCH]
            )
            for detail in response["AutoScalingInstances"]:
                is_healthy = detail["HealthStatus"].upper() == "HEALTHY"
                states[detail["InstanceId"]] = detail["LifecycleState"] if is_healthy else "Unhealthy"
        by_member = {member: states.get(member, "in no group") for member in members}
        return {member: state for member, state in by_member.items() if state != _IN_SERVICE}


def _slots(settings: GroupSettings, instances: Iterable[InstanceTypeDef]) -> dict[str, int]:
    slots = settings.group.config.slots
    return {instance["InstanceId"]: slots.get(instance["InstanceType"], 1) for instance in instances}


def hosts(
    settings: GroupSettings,
    instances: Iterable[InstanceTypeDef],
    registry: RegistrySnapshot,
    memory: Memory,
    now: float,
    exemptions: Mapping[str, str],
) -> tuple[WorkerHost, ...]:
    """Return a group's hosts.

    ``memory`` is the controller's. ``exemptions``: instances that must not be replaced, with the reason.
    """
    result = [
        _instance(settings, instance, registry.instances, memory, now, exemptions) for instance in instances
    ]
    for name, workers in registry.on_premises.workers.items():
        registered = tuple(w for w in workers if now - w.heartbeat < EXPIRES_AFTER_SECONDS)
        # A host with the name of an instance would be taken for that instance.
        if registered and not _INSTANCE.fullmatch(name):
            reason, is_malformed = _drain_reason(registered), name in registry.on_premises.malformed_hosts
            host = WorkerHost(name, registered, exemption_reason=reason, has_malformed_records=is_malformed)
            result.append(host)
    return tuple(result)


def fleet_members(settings: GroupSettings, instances: Iterable[InstanceTypeDef]) -> frozenset[str]:
    """Return the members of the group's Spot Fleet."""
    if settings.resources[GroupRole.PRIMARY].kind != SPOT_FLEET:
        return frozenset()
    return frozenset(
        instance["InstanceId"]
        for instance in instances
        if tag(instance, names.TAG_GROUP_ROLE) == GroupRole.PRIMARY
    )


def _instance(
    settings: GroupSettings,
    instance: InstanceTypeDef,
    registry: RegisteredWorkers,
    memory: Memory,
    now: float,
    exemptions: Mapping[str, str],
) -> WorkerHost:
    name = instance["InstanceId"]
    workers = tuple(registry.workers.get(name, ()))
    return WorkerHost(
        name,
        workers,
        settings.group.config.slots.get(instance["InstanceType"], 1),
        instance["LaunchTime"].timestamp(),
        exemption_reason=exemptions.get(name, "")
        or _marked_reason(name, memory)
        or _drain_reason(workers)
        or _interruption_reason(workers, now),
        has_malformed_records=name in registry.malformed_hosts,
        is_spot=instance.get("InstanceLifecycle") == "spot",
    )


def _marked_reason(name: str, memory: Memory) -> str:
    if name in memory.termination_deadlines:
        return "interrupted"
    return "terminating" if name in memory.termination_requests else ""


def _drain_reason(workers: tuple[Worker, ...]) -> str:
    return "draining" if any(worker.state == "draining" for worker in workers) else ""


def _interruption_reason(workers: tuple[Worker, ...], now: float) -> str:
    return "" if deadline(list(workers), now) is None else "interrupted"


def tag(instance: InstanceTypeDef, key: str) -> str:
    """Return the value of an instance's tag, empty without it."""
    return next((tag["Value"] for tag in instance.get("Tags", ()) if tag["Key"] == key), "")
