"""The worker registry: a DynamoDB table of the workers' heartbeats.

A reader asks for the items of the hosts and slots that the group has, by their whole keys. The partition key
names the only writer that IAM allows, so an item is about its own host, and no other item is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contracts import names
from contracts.limits import NOTICE_SECONDS
from contracts.registry import item as registry_item
from contracts.registry.item import MAX_CLOCK_SKEW_SECONDS, STALE_SECONDS, Progress, Worker
from lambdas.aws.budget import Budget, BudgetError
from lambdas.core.capacity.memory import MARK_RETENTION_SECONDS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_MAX_NOTICE_SECONDS: Final = NOTICE_SECONDS + STALE_SECONDS
_BATCH: Final = 100
"""Maximum number of keys of one ``BatchGetItem``."""
_MAX_ATTEMPTS: Final = 10
"""Attempts to read a batch; DynamoDB returns the keys that it did not read."""


@dataclass(frozen=True, slots=True)
class RegisteredWorkers:
    """A group's workers by host, the number of malformed items, and the hosts that they belong to."""

    workers: Mapping[str, list[Worker]]
    malformed_items: int
    malformed_hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class RegistryReader:
    """Reads the registry table; ``instance_arns`` is the ARN of instances up to the instance id."""

    dynamodb: DynamoDBClient
    table: str
    instance_arns: str

    def read(self, group: str, slots: Mapping[str, int], budget: Budget) -> RegisteredWorkers:
        """Return the registered workers of a group's instances.

        Args:
            group: the group.
            slots: number of slots by instance id; other items are not read.
            budget: the group's share of the pass.

        Malformed items are skipped and counted.

        Raises:
            BudgetError: the group's share of the pass is used up, or DynamoDB does not return all items.
        """
        partitions = {
            instance: registry_item.partition(group, self.instance_arns + instance) for instance in slots
        }
        return self._read(partitions, slots, budget)

    def read_on_premises(self, group: str, slots: Mapping[str, int], budget: Budget) -> RegisteredWorkers:
        """Return the registered workers on premises; ``slots`` is the number of slots by host name."""
        name = names.on_premises_partition(group)
        return self._read({host: registry_item.partition(name, host) for host in slots}, slots, budget)

    def _read(
        self, partitions: Mapping[str, str], slots: Mapping[str, int], budget: Budget
    ) -> RegisteredWorkers:
        keys = [
            registry_item.key(partitions[host], host, slot)
            for host, count in slots.items()
            for slot in range(count)
        ]
        workers: dict[str, list[Worker]] = {}
        malformed_items = 0
        malformed_hosts: set[str] = set()
        for item in self.items(keys, budget):
            try:
                worker = registry_item.parse(item)
            except ValueError:
                malformed_items += 1
                malformed_hosts.add(registry_item.instance_of(item))
            else:
                workers.setdefault(worker.instance, []).append(worker)
        return RegisteredWorkers(workers, malformed_items, frozenset(malformed_hosts))

    def items(self, keys: Sequence[Mapping[str, Any]], budget: Budget) -> Iterator[Mapping[str, Any]]:
        """Yield the items with these keys; missing ones are left out. Raises ``BudgetError``."""
        for start in range(0, len(keys), _BATCH):
            yield from self._items(keys[start : start + _BATCH], budget)

    def _items(self, keys: Sequence[Mapping[str, Any]], budget: Budget) -> list[Mapping[str, Any]]:
        """Return the items of at most 100 keys; missing ones are left out."""
        items: list[Mapping[str, Any]] = []
        for _ in range(_MAX_ATTEMPTS):
            budget.check("items of the worker registry")
            response = self.dynamodb.batch_get_item(RequestItems={self.table: {"Keys": keys}})
            items += response["Responses"].get(self.table, ())
            unprocessed = response.get("UnprocessedKeys", {})
            if self.table not in unprocessed:
                return items
            keys = unprocessed[self.table]["Keys"]
        raise BudgetError(f"{len(keys)} items of the worker registry not read in {_MAX_ATTEMPTS} attempts")


def ready_since(workers: list[Worker], expected: int, now: float) -> float | None:
    """Return the time since which all ``expected`` workers report; None while any is missing or stale."""
    starts = sorted(min(worker.since, now) for worker in _fresh(workers, now) if worker.state != "waiting")
    return starts[expected - 1] if len(starts) >= expected else None


def count_serving(registered: RegisteredWorkers, now: float) -> int:
    """Return the number of ready workers without a termination deadline."""
    return sum(
        worker.state == "ready" and worker.deadline is None
        for workers in registered.workers.values()
        for worker in _fresh(workers, now)
    )


def has_standby_worker(workers: list[Worker], now: float) -> bool:
    """Return whether a worker waits for its job."""
    return any(worker.state == "waiting" for worker in _fresh(workers, now))


def _fresh(workers: list[Worker], now: float) -> list[Worker]:
    return [worker for worker in workers if worker.is_fresh(now)]


def deadline(workers: list[Worker], now: float) -> float | None:
    """Return the termination deadline that the instance reports from its metadata, if any.

    Used only while the reports are fresh, and within the span of a notice.
    """
    deadlines = (worker.deadline for worker in _fresh(workers, now) if worker.deadline is not None)
    return min(
        (d for d in deadlines if now - MARK_RETENTION_SECONDS < d < now + _MAX_NOTICE_SECONDS), default=None
    )


def progress(workers: list[Worker], now: float) -> Progress | None:
    """Return the newest progress report of the fresh workers; None if there is none.

    Reports from the future are ignored: the worker's clock is wrong.
    """
    reports = [worker.progress for worker in _fresh(workers, now) if worker.progress is not None]
    return max(
        (report for report in reports if report.reported_at <= now + MAX_CLOCK_SKEW_SECONDS),
        key=lambda report: report.reported_at,
        default=None,
    )
