"""The controller's memory of a group: a DynamoDB item, written with optimistic locking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lambdas.aws.budget import Budget
from lambdas.aws.items import INVALID_VERSION, ConflictError, Item, VersionedItems, expiry
from lambdas.core.capacity import memory as memory_text
from lambdas.core.capacity.memory import Memory

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ("ConflictError", "MemoryStore", "StoredMemory")


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory with the version of its item; 0: no item, -1: an invalid version, which any save overwrites.

    ``parse_error``: why the stored memory cannot be used; ``memory`` is empty then.
    """

    memory: Memory
    version: int = 0
    wake_at: float | None = None
    parse_error: str | None = None
    expires_at: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryStore:
    """Reads and writes the memory table."""

    dynamodb: DynamoDBClient
    table: str
    fetched: Mapping[str, Item | None] = field(default_factory=dict)

    def prefetched(self, groups: Iterable[str], budget: Budget) -> MemoryStore:
        """Return a store that has read the memories of these groups at once."""
        return replace(self, fetched=self.items.prefetched(groups, budget).fetched)

    def load(self, group: str) -> StoredMemory:
        """Return the group's memory; empty if there is none or it cannot be parsed."""
        item, version = self.items.load(group)
        if item is None:
            return StoredMemory(Memory())
        if version == INVALID_VERSION:
            return StoredMemory(Memory(), version, parse_error="its version is not a number")
        try:
            wake_at = float(item["wakeAt"]["N"]) if "wakeAt" in item else None
            memory = memory_text.parse(item["memory"]["S"])
            return StoredMemory(memory, version, wake_at, expires_at=expiry(item))
        except (ValueError, KeyError, TypeError) as error:
            return StoredMemory(Memory(), version, parse_error=str(error))

    def save(self, group: str, memory: Memory, wake_at: float | None, version: int, now: float) -> int:
        """Store the memory and return its new version; raise ``ConflictError`` unless ``version`` is newest.

        ``wake_at``, the time of the next wake-up, is a separate attribute, for operators and tools.
        """
        attributes: dict[str, Any] = {"memory": {"S": memory_text.dump(memory)}}
        if wake_at is not None:
            attributes["wakeAt"] = {"N": str(wake_at)}
        return self.items.save(group, attributes, version, now)

    @property
    def items(self) -> VersionedItems:
        """The items of the table."""
        return VersionedItems(self.dynamodb, self.table, self.fetched)
