"""Worker registry of the local cloud: the heartbeats that workers on the instances would write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from contracts import names
from contracts.registry import item as registry_item
from contracts.registry.item import Worker, WorkerState
from contracts.registry.worker_report import WorkerReport
from pulumi_on_moto.sandbox import AwsClients

_BATCH: Final = 25
"""Items that one ``BatchWriteItem`` takes at most."""
_VERSION: Final = "rehearsed"
"""What the workers say that they run."""


@dataclass(frozen=True, slots=True)
class InstanceHeartbeat:
    """One instance whose workers are alive.

    Attributes:
        group: the capacity group.
        instance: the instance's id.
        slots: how many workers it runs.
        deadline: when AWS takes it, in epoch seconds; None if no notice was given.
        drain_seconds: how long before the deadline its workers stop taking work.
    """

    group: str
    instance: str
    slots: int
    deadline: float | None = None
    drain_seconds: float = 0.0


class Heartbeats:
    """Writes items as workers do; ``since`` is kept from the first heartbeat on.

    Workers tell that they are well; what those of an instance tell instead stands in ``told``.
    """

    def __init__(self, clients: AwsClients, table: str) -> None:
        self._dynamodb = clients("dynamodb")
        self._table = table
        self._since: dict[str, float] = {}
        self._workers: dict[str, tuple[str, int]] = {}
        self.overrides: dict[str, Callable[[WorkerReport], WorkerReport]] = {}

    def write(self, heartbeats: Iterable[InstanceHeartbeat], now: float) -> None:
        """Write a heartbeat of every worker of every instance."""
        puts = [
            {"PutRequest": {"Item": item}} for heartbeat in heartbeats for item in self._items(heartbeat, now)
        ]
        self._send(puts)

    def on_premises(self, group: str, hosts: Iterable[str], now: float) -> None:
        """Write a heartbeat of one worker on each of these hosts, which are none of AWS's."""
        partition = names.on_premises_partition(group)
        self.write((InstanceHeartbeat(partition, host, 1) for host in hosts), now)

    def forget(self, instance_ids: Iterable[str]) -> None:
        """Delete the items of instances that are gone, as DynamoDB's expiry does in its own time."""
        deletes = []
        for instance in instance_ids:
            self._since.pop(instance, None)
            group, slots = self._workers.pop(instance, ("", 0))
            deletes += [
                {"DeleteRequest": {"Key": registry_item.key(group, instance, slot)}} for slot in range(slots)
            ]
        self._send(deletes)

    def restart(self, instance: str, now: float) -> None:
        """Start the workers of an instance anew, as its agent does once it is asked to."""
        if instance in self._since:
            self._since[instance] = now

    def _items(self, heartbeat: InstanceHeartbeat, now: float) -> list[dict[str, Any]]:
        since = self._since.setdefault(heartbeat.instance, now)
        self._workers[heartbeat.instance] = (heartbeat.group, heartbeat.slots)
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
                    heartbeat.group,
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
