"""The worker registry: a DynamoDB table of the workers' heartbeats.

A reader asks for the items of the hosts and slots that the group has, by their whole keys. The partition key
names the only writer that IAM allows, so an item is about its own host, and no other item is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from contracts import names
from contracts.limits import NOTICE_SECONDS
from contracts.registry import item as registry_item
from contracts.registry.item import MAX_CLOCK_SKEW_SECONDS, STALE_SECONDS, Progress, Worker
from lambdas.aws.budget import Budget
from lambdas.aws.items import Item, batch_get
from lambdas.core.capacity.memory import MARK_RETENTION_SECONDS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_MAX_NOTICE_SECONDS: Final = NOTICE_SECONDS + STALE_SECONDS


@dataclass(frozen=True, slots=True)
class RegisteredWorkers:
    """A group's workers by host, the number of malformed items, and the hosts that they belong to."""

    workers: Mapping[str, list[Worker]]
    malformed_items: int
    malformed_hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class RegistryReader:
    """Reads the registry table; ``instance_arns`` is the ARN of instances up to the instance id.

    ``fetched`` are items by partition and worker that `prefetched` has read.
    """

    dynamodb: DynamoDBClient
    table: str
    instance_arns: str
    fetched: Mapping[tuple[str, str], Item | None] = field(default_factory=dict)

    def read(self, group: str, slots: Mapping[str, int], budget: Budget) -> RegisteredWorkers:
        """Return the registered workers of a group's instances.

        Args:
            group: the group.
            slots: number of slots by instance id; other items are not read.
            budget: the time of the pass.

        Malformed items are skipped and counted.

        Raises:
            BudgetError: the pass is over.
        """
        return self._read(self.keys(group, slots), budget)

    def read_on_premises(self, group: str, slots: Mapping[str, int], budget: Budget) -> RegisteredWorkers:
        """Return the registered workers on premises; ``slots`` is the number of slots by host name."""
        return self._read(on_premises_keys(group, slots), budget)

    def keys(self, group: str, slots: Mapping[str, int]) -> list[Item]:
        """Return the keys of the items of a group's instances."""
        return _keys(group, {instance: self.instance_arns + instance for instance in slots}, slots)

    def _read(self, keys: Sequence[Item], budget: Budget) -> RegisteredWorkers:
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

    def prefetched(self, keys: Iterable[Item], budget: Budget) -> Self:
        """Return a reader that has read the items with these keys at once."""
        by_id = {key_id(key): key for key in keys}
        items = batch_get(self.dynamodb, self.table, list(by_id.values()), budget)
        return replace(self, fetched={**dict.fromkeys(by_id), **{key_id(item): item for item in items}})

    def has_fresh(self, keys: Iterable[Item], now: float) -> bool:
        """Return whether one of the items that were read is the report of a worker of now."""
        return any(
            (item := self.fetched.get(key_id(key))) is not None and _is_fresh(item, now) for key in keys
        )

    def items(self, keys: Sequence[Item], budget: Budget) -> Iterator[Item]:
        """Yield the items with these keys; missing ones are left out. Raises ``BudgetError``."""
        yield from (item for key in keys if (item := self.fetched.get(key_id(key))) is not None)
        missing_keys = [key for key in keys if key_id(key) not in self.fetched]
        yield from batch_get(self.dynamodb, self.table, missing_keys, budget)


def _is_fresh(item: Item, now: float) -> bool:
    try:
        return registry_item.parse(item).is_fresh(now)
    except ValueError:
        return False


def on_premises_keys(group: str, slots: Mapping[str, int]) -> list[Item]:
    """Return the keys of the items of a group's hosts on premises; ``slots`` by host name."""
    return _keys(names.on_premises_partition(group), {host: host for host in slots}, slots)


def _keys(group: str, writers: Mapping[str, str], slots: Mapping[str, int]) -> list[Item]:
    partitions = {host: registry_item.partition(group, writer) for host, writer in writers.items()}
    return [registry_item.key(partitions[h], h, slot) for h, count in slots.items() for slot in range(count)]


def key_id(item: Item) -> tuple[str, str]:
    """Return the partition and the worker of an item or key."""
    return item[names.REGISTRY_KEY]["S"], item[names.REGISTRY_SORT_KEY]["S"]


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
