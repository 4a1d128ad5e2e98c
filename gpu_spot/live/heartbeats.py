"""Worker registry of the local cloud: the heartbeats that workers on the instances would write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from lambdas.core import names
from pulumi_on_moto.sandbox import AwsClients

_BATCH: Final = 25
"""Items that one ``BatchWriteItem`` takes at most."""

EXPIRES_AFTER_SECONDS: Final = 3600
"""From a worker's last heartbeat to the expiry of its item."""


@dataclass(frozen=True, slots=True)
class Beat:
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
    """Writes items as ``docs/architecture.md`` fixes them; ``since`` is kept from the first heartbeat on."""

    def __init__(self, clients: AwsClients, table: str) -> None:
        self._dynamodb = clients("dynamodb")
        self._table = table
        self._since: dict[str, float] = {}
        self._workers: dict[str, tuple[str, int]] = {}

    def write(self, beats: Iterable[Beat], now: float) -> None:
        """Write a heartbeat of every worker of every instance."""
        puts = [{"PutRequest": {"Item": item}} for beat in beats for item in self._items(beat, now)]
        self._send(puts)

    def forget(self, instance_ids: Iterable[str]) -> None:
        """Delete the items of instances that are gone, as DynamoDB's expiry does in its own time."""
        deletes = []
        for instance in instance_ids:
            self._since.pop(instance, None)
            group, slots = self._workers.pop(instance, ("", 0))
            for slot in range(slots):
                key = {names.REGISTRY_KEY: {"S": group}, names.REGISTRY_SORT_KEY: {"S": f"{instance}/{slot}"}}
                deletes.append({"DeleteRequest": {"Key": key}})
        self._send(deletes)

    def _items(self, beat: Beat, now: float) -> list[dict[str, Any]]:
        since = self._since.setdefault(beat.instance, now)
        self._workers[beat.instance] = (beat.group, beat.slots)
        draining = beat.deadline is not None and now >= beat.deadline - beat.drain_seconds
        shared: dict[str, Any] = {
            names.REGISTRY_KEY: {"S": beat.group},
            "instance": {"S": beat.instance},
            "since": {"N": _number(since)},
            "heartbeat": {"N": _number(now)},
            "state": {"S": "draining" if draining else "ready"},
            names.REGISTRY_TTL: {"N": str(int(now) + EXPIRES_AFTER_SECONDS)},
        }
        if beat.deadline is not None:
            shared["deadline"] = {"N": _number(beat.deadline)}
        return [
            {**shared, names.REGISTRY_SORT_KEY: {"S": f"{beat.instance}/{slot}"}}
            for slot in range(beat.slots)
        ]

    def _send(self, requests: list[dict[str, Any]]) -> None:
        for start in range(0, len(requests), _BATCH):
            self._dynamodb.batch_write_item(RequestItems={self._table: requests[start : start + _BATCH]})


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
