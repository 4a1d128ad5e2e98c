"""The worker registry (DynamoDB): which workers of which instances have sent heartbeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lambdas.core import names, registry_item
from lambdas.core.registry_item import Worker

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

STALE_SECONDS: Final = 90.0
"""A worker unheard for so long counts as missing: three heartbeats of 30 s."""


@dataclass(frozen=True, slots=True)
class RegistryReader:
    """Reads the registry table."""

    dynamodb: DynamoDBClient
    table: str

    def workers(self, group: str) -> dict[str, list[Worker]]:
        """Return every registered worker of a group by instance, paged; on-premises workers among them."""
        found: dict[str, list[Worker]] = {}
        pages = self.dynamodb.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#g = :g",
            ExpressionAttributeNames={"#g": names.REGISTRY_KEY},
            ExpressionAttributeValues={":g": {"S": group}},
        )
        for page in pages:
            for item in page["Items"]:
                worker = registry_item.parse(item)
                found.setdefault(worker.instance, []).append(worker)
        return found


def ready_since(workers: list[Worker], expected: int, now: float) -> float | None:
    """Return since when all ``expected`` workers have been heard, ``None`` while one is missing or stale."""
    heard = sorted(worker.since for worker in _fresh(workers, now) if worker.state != "waiting")
    return heard[expected - 1] if len(heard) >= expected else None


def standing_by(workers: list[Worker], now: float) -> bool:
    """Say whether a worker waits there for its job."""
    return any(worker.state == "waiting" for worker in _fresh(workers, now))


def _fresh(workers: list[Worker], now: float) -> list[Worker]:
    return [worker for worker in workers if worker.heartbeat > now - STALE_SECONDS]


def deadline(workers: list[Worker]) -> float | None:
    """Return the deadline that the instance itself has read from its metadata, if any."""
    return min((worker.deadline for worker in workers if worker.deadline is not None), default=None)
