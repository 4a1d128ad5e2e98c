"""The worker registry (DynamoDB): which worker slots of which instances have sent heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lambdas.core import names

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

STALE_SECONDS: Final = 90.0
"""A slot unheard for so long counts as missing: three heartbeats of 30 s."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One worker: its first heartbeat (``since``), its last, and its instance's deadline if known.

    ``waiting`` says that it cannot work yet: another instance has its job, or the job's volume is on its way.
    """

    instance_id: str
    since: float
    heartbeat: float
    deadline: float | None = None
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class Registry:
    """Reads the registry table."""

    dynamodb: DynamoDBClient
    table: str

    def slots(self, group: str) -> dict[str, list[Slot]]:
        """Return every registered slot of a group by instance, paged; on-premises workers among them."""
        found: dict[str, list[Slot]] = {}
        pages = self.dynamodb.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="#g = :g",
            ExpressionAttributeNames={"#g": names.REGISTRY_KEY},
            ExpressionAttributeValues={":g": {"S": group}},
        )
        for page in pages:
            for item in page["Items"]:
                slot = _slot(item)
                found.setdefault(slot.instance_id, []).append(slot)
        return found


def ready_since(slots: list[Slot], expected: int, now: float) -> float | None:
    """Return since when all ``expected`` slots have been heard, ``None`` while one is missing or stale."""
    heard = sorted(slot.since for slot in _fresh(slots, now) if not slot.waiting)
    return heard[expected - 1] if len(heard) >= expected else None


def standing_by(slots: list[Slot], now: float) -> bool:
    """Say whether a worker waits there for its job."""
    return any(slot.waiting for slot in _fresh(slots, now))


def _fresh(slots: list[Slot], now: float) -> list[Slot]:
    return [slot for slot in slots if slot.heartbeat > now - STALE_SECONDS]


def deadline(slots: list[Slot]) -> float | None:
    """Return the deadline that the instance itself has read from its metadata, if any."""
    return min((slot.deadline for slot in slots if slot.deadline is not None), default=None)


def _slot(item: Mapping[str, Any]) -> Slot:
    return Slot(
        instance_id=item["instance"]["S"],
        since=float(item["since"]["N"]),
        heartbeat=float(item["heartbeat"]["N"]),
        deadline=float(item["deadline"]["N"]) if "deadline" in item else None,
        waiting=item.get("state", {}).get("S") == names.STATE_WAITING,
    )
