"""Heartbeats of simulated workers in the worker registry of the local cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from contracts.registry import item as registry_item
from contracts.registry.item import Worker
from contracts.registry.worker_report import WorkerReport
from pulumi_on_moto.emulator import AwsClients

_BATCH: Final = 25
"""Maximum number of items of one ``BatchWriteItem``."""


class Heartbeats:
    """Writes registry items as workers do; a worker's ``since`` is its first heartbeat.

    Workers report that they are healthy unless ``overrides`` changes the reports of their instance.
    """

    def __init__(self, clients: AwsClients, table: str) -> None:
        self._dynamodb = clients("dynamodb")
        self._table = table
        self.since: dict[str, float] = {}
        """First heartbeat by instance: a later one is a restart of its workers."""
        self._keys: dict[str, dict[int, Any]] = {}
        self.overrides: dict[str, Callable[[WorkerReport], WorkerReport]] = {}

    def write(self, workers: Iterable[Worker], now: float) -> None:
        """Write the heartbeats of these workers."""
        puts: list[dict[str, Any]] = []
        for worker in workers:
            since = self.since.setdefault(worker.instance, now)
            report = WorkerReport(
                "rehearsed", f"GPU-{worker.instance}", now, int(now - since), rate=1.0, gpu_use=70.0
            )
            if worker.instance in self.overrides:
                report = self.overrides[worker.instance](report)
            item = registry_item.dump(replace(worker, since=since, report=report))
            puts.append({"PutRequest": {"Item": item}})
            key = registry_item.key(worker.partition, worker.instance, worker.slot)
            self._keys.setdefault(worker.instance, {})[worker.slot] = key
        self._send(puts)

    def forget(self, instance_ids: Iterable[str]) -> None:
        """Delete the items of terminated instances, as DynamoDB TTL does later."""
        deletes = []
        for instance in instance_ids:
            self.since.pop(instance, None)
            deletes += [{"DeleteRequest": {"Key": key}} for key in self._keys.pop(instance, {}).values()]
        self._send(deletes)

    def _send(self, requests: list[dict[str, Any]]) -> None:
        for start in range(0, len(requests), _BATCH):
            self._dynamodb.batch_write_item(RequestItems={self._table: requests[start : start + _BATCH]})
