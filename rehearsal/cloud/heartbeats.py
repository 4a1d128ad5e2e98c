"""Heartbeats of simulated workers in the worker registry of the local cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from contracts.registry import item as registry_item
from contracts.registry.item import Worker, WorkerState
from contracts.registry.worker_report import WorkerReport
from pulumi_on_moto.sandbox import AwsClients

_BATCH: Final = 25
"""Maximum number of items of one ``BatchWriteItem``."""
_VERSION: Final = "rehearsed"
"""Release that the workers report."""


@dataclass(frozen=True, slots=True)
class InstanceHeartbeat:
    """The heartbeat of an instance whose workers run.

    Attributes:
        partition: the registry's partition that the instance may write.
        instance: the instance's id.
        slots: number of workers.
        deadline: when EC2 terminates it, in epoch seconds; None without a notice.
        drain_seconds: time before the deadline at which its workers stop receiving messages.
    """

    partition: str
    instance: str
    slots: int
    deadline: float | None = None
    drain_seconds: float = 0.0


class Heartbeats:
    """Writes registry items as workers do; ``since`` is the time of the first heartbeat.

    Workers report that they are healthy unless ``overrides`` changes the reports of their instance.
    """

    def __init__(self, clients: AwsClients, table: str) -> None:
        self._dynamodb = clients("dynamodb")
        self._table = table
        self._since: dict[str, float] = {}
        self._workers: dict[str, tuple[str, int]] = {}
        self.overrides: dict[str, Callable[[WorkerReport], WorkerReport]] = {}

    def write(self, heartbeats: Iterable[InstanceHeartbeat], now: float) -> None:
        """Write the heartbeats of all workers of these instances."""
        puts = [
            {"PutRequest": {"Item": item}} for heartbeat in heartbeats for item in self._items(heartbeat, now)
        ]
        self._send(puts)

    def forget(self, instance_ids: Iterable[str]) -> None:
        """Delete the items of terminated instances, as DynamoDB TTL does later."""
        deletes = []
        for instance in instance_ids:
            self._since.pop(instance, None)
            partition, slots = self._workers.pop(instance, ("", 0))
            deletes += [
                {"DeleteRequest": {"Key": registry_item.key(partition, instance, slot)}}
                for slot in range(slots)
            ]
        self._send(deletes)

    def restart(self, instance: str, now: float) -> None:
        """Restart the workers of an instance, as its agent does on request."""
        if instance in self._since:
            self._since[instance] = now

    def _items(self, heartbeat: InstanceHeartbeat, now: float) -> list[dict[str, Any]]:
        since = self._since.setdefault(heartbeat.instance, now)
        self._workers[heartbeat.instance] = (heartbeat.partition, heartbeat.slots)
        draining = heartbeat.deadline is not None and now >= heartbeat.deadline - heartbeat.drain_seconds
        state: WorkerState = "draining" if draining else "ready"
        healthy = WorkerReport(
            _VERSION, f"GPU-{heartbeat.instance}", now, int(now - since), rate=1.0, gpu_use=70.0
        )
        override = self.overrides.get(heartbeat.instance)
        report = healthy if override is None else override(healthy)
        return [
            registry_item.dump(
                Worker(
                    heartbeat.partition,
                    heartbeat.instance,
                    slot,
                    since,
                    now,
                    state,
                    heartbeat.deadline,
                    report=report,
                )
            )
            for slot in range(heartbeat.slots)
        ]

    def _send(self, requests: list[dict[str, Any]]) -> None:
        for start in range(0, len(requests), _BATCH):
            self._dynamodb.batch_write_item(RequestItems={self._table: requests[start : start + _BATCH]})
