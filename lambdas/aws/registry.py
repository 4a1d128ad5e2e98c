"""The worker registry (DynamoDB): which workers of which instances have sent heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contracts import names
from contracts.registry import item as registry_item
from contracts.registry.item import SKEW_SECONDS, STALE_SECONDS, Progress, Worker
from lambdas.aws.budget import Budget
from lambdas.core.capacity.memory import FORGET_SECONDS
from lambdas.core.events import NOTICE_SECONDS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_LONGEST_NOTICE: Final = NOTICE_SECONDS + STALE_SECONDS


@dataclass(frozen=True, slots=True)
class Registered:
    """The workers of a group by instance, how many rows made no sense, and whose these are."""

    workers: Mapping[str, list[Worker]]
    malformed: int
    unclear: frozenset[str]


@dataclass(frozen=True, slots=True)
class RegistryReader:
    """Reads the registry table."""

    dynamodb: DynamoDBClient
    table: str

    def read(self, group: str, budget: Budget) -> Registered:
        """Return every registered worker of a group on instances, paged.

        Any worker may write rows of its group: what makes no sense is skipped and counted.
        """
        return self._partition(group, budget)

    def elsewhere(self, group: str, budget: Budget) -> Registered:
        """Return every registered worker of a group on premises, by host, paged."""
        return self._partition(names.on_premises_partition(group), budget)

    def _partition(self, partition: str, budget: Budget) -> Registered:
        found: dict[str, list[Worker]] = {}
        malformed = 0
        unclear: set[str] = set()
        pages = self.dynamodb.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#g = :g",
            ExpressionAttributeNames={"#g": names.REGISTRY_KEY},
            ExpressionAttributeValues={":g": {"S": partition}},
        )
        for page in budget.pages("rows in the worker registry", pages):
            for item in page["Items"]:
                try:
                    worker = registry_item.parse(item)
                except ValueError:
                    malformed += 1
                    unclear.add(registry_item.owner(item))
                else:
                    found.setdefault(worker.instance, []).append(worker)
        return Registered(found, malformed, frozenset(unclear))


def ready_since(workers: list[Worker], expected: int, now: float) -> float | None:
    """Return since when all ``expected`` workers have been heard, ``None`` while one is missing or stale."""
    heard = sorted(min(worker.since, now) for worker in _fresh(workers, now) if worker.state != "waiting")
    return heard[expected - 1] if len(heard) >= expected else None


def serving(registered: Registered, now: float) -> int:
    """Return how many of the workers serve now and go on to."""
    return sum(
        worker.state == "ready" and worker.deadline is None
        for workers in registered.workers.values()
        for worker in _fresh(workers, now)
    )


def standing_by(workers: list[Worker], now: float) -> bool:
    """Say whether a worker waits there for its job."""
    return any(worker.state == "waiting" for worker in _fresh(workers, now))


def _fresh(workers: list[Worker], now: float) -> list[Worker]:
    return [worker for worker in workers if worker.is_fresh(now)]


def deadline(workers: list[Worker], now: float) -> float | None:
    """Return the deadline that the instance itself has read from its metadata, if any.

    Believed only as long as it is repeated, and within what a notice reaches: a row may be another's work.
    """
    told = (worker.deadline for worker in _fresh(workers, now) if worker.deadline is not None)
    return min((d for d in told if now - FORGET_SECONDS < d < now + _LONGEST_NOTICE), default=None)


def progress(workers: list[Worker], now: float) -> Progress | None:
    """Return what the newest of the workers that are heard tells of its job, ``None`` where none tells.

    What was told later than now is not believed: its clock is wrong.
    """
    told = [worker.progress for worker in _fresh(workers, now) if worker.progress is not None]
    return max((one for one in told if one.at <= now + SKEW_SECONDS), key=lambda one: one.at, default=None)
