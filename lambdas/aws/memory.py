"""Keep a group's memory in one DynamoDB item, written only by whoever read its newest version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lambdas.aws.items import NO_NUMBER, ConflictError, VersionedItems
from lambdas.core.capacity import memory as memory_text
from lambdas.core.capacity.memory import Memory

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ("ConflictError", "MemoryStore", "Remembered")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A memory as stored; ``version`` 0: nothing was. ``unreadable`` says why what was stored is lost.

    An item whose version is no number has ``version`` -1, and whoever saves over that takes any.
    """

    memory: Memory
    version: int = 0
    wake_at: float | None = None
    unreadable: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryStore:
    """Reads and writes the memory table."""

    dynamodb: DynamoDBClient
    table: str

    def load(self, group: str) -> Remembered:
        """Return the group's memory; an empty one where there is none or it cannot be read."""
        item, version = self._items().load(group)
        if item is None:
            return Remembered(Memory())
        if version == NO_NUMBER:
            return Remembered(Memory(), version, unreadable="its version is no number")
        try:
            wake_at = float(item["wakeAt"]["N"]) if "wakeAt" in item else None
            return Remembered(memory_text.parse(item["memory"]["S"]), version, wake_at)
        except (ValueError, KeyError, TypeError) as error:
            return Remembered(Memory(), version, unreadable=str(error))

    def save(self, group: str, memory: Memory, wake_at: float | None, version: int) -> int:
        """Store the memory over ``version`` and return its own; raise ``ConflictError`` if it is old.

        ``wake_at`` stands beside it for people and tools: when this group's next look may matter.
        """
        attributes: dict[str, Any] = {"memory": {"S": memory_text.dump(memory)}}
        if wake_at is not None:
            attributes["wakeAt"] = {"N": str(wake_at)}
        return self._items().save(group, attributes, version)

    def _items(self) -> VersionedItems:
        return VersionedItems(self.dynamodb, self.table)
