"""The worker registry: a DynamoDB table of the workers' heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contracts import names
from contracts.registry import item as registry_item
from contracts.registry.item import MAX_CLOCK_SKEW_SECONDS, STALE_SECONDS, Progress, Worker
from lambdas.aws.budget import Budget
from lambdas.core.capacity.memory import MARK_RETENTION_SECONDS
from lambdas.core.events import NOTICE_SECONDS

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
    """Reads the registry table."""

    dynamodb: DynamoDBClient
    table: str

    def read(self, group: str, budget: Budget) -> RegisteredWorkers:
        """Return the registered workers of a group on instances.

        Malformed items are skipped and counted: each worker may write items of its group.
        """
        return self._read_partition(group, budget)

    def read_on_premises(self, group: str, budget: Budget) -> RegisteredWorkers:
        """Return the registered workers of a group on premises."""
        return self._read_partition(names.on_premises_partition(group), budget)

    def _read_partition(self, partition: str, budget: Budget) -> RegisteredWorkers:
        workers: dict[str, list[Worker]] = {}
        malformed_items = 0
        malformed_hosts: set[str] = set()
        pages = self.dynamodb.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#g = :g",
            ExpressionAttributeNames={"#g": names.REGISTRY_KEY},
            ExpressionAttributeValues={":g": {"S": partition}},
        )
        for page in budget.pages("items of the worker registry", pages):
            for item in page["Items"]:
                try:
                    worker = registry_item.parse(item)
                except ValueError:
                    malformed_items += 1
                    malformed_hosts.add(registry_item.instance_of(item))
                else:
                    workers.setdefault(worker.instance, []).append(worker)
        return RegisteredWorkers(workers, malformed_items, frozenset(malformed_hosts))


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

    Used only while the reports are fresh, and within the span of a notice: other workers may write them.
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
