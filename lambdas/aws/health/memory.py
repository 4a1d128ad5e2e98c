"""The health checker's memory of a group: an item of the memory table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from contracts import names
from lambdas.aws.budget import Budget
from lambdas.aws.items import INVALID_VERSION, VersionedItems, expiry
from lambdas.core.health import memory as memory_text
from lambdas.core.health.memory import HealthMemory


@dataclass(frozen=True, slots=True)
class StoredHealthMemory:
    """A memory with the version of its item; 0: no item. ``parse_error``: why it cannot be used."""

    memory: HealthMemory
    version: int = 0
    parse_error: str = ""
    expires_at: float = 0.0


@dataclass(frozen=True, slots=True)
class HealthMemoryStore:
    """Reads and writes the memory table; a save over a newer version raises ``ConflictError``."""

    items: VersionedItems

    def prefetched(self, groups: Iterable[str], budget: Budget) -> HealthMemoryStore:
        """Return a store that has read the memories of these groups at once."""
        return replace(self, items=self.items.prefetched(map(names.health_memory, groups), budget))

    def load(self, group: str) -> StoredHealthMemory:
        """Return the group's memory; empty if there is none or it cannot be parsed."""
        item, version = self.items.load(names.health_memory(group))
        if item is None:
            return StoredHealthMemory(HealthMemory())
        if version == INVALID_VERSION:
            return StoredHealthMemory(HealthMemory(), version, "its version is not a number")
        try:
            memory = memory_text.parse(item["memory"]["S"])
            return StoredHealthMemory(memory, version, expires_at=expiry(item))
        except (ValueError, KeyError, TypeError) as error:
            return StoredHealthMemory(HealthMemory(), version, str(error))

    def save(self, group: str, memory: HealthMemory, version: int, now: float) -> int:
        """Store the memory over ``version`` and return its new version."""
        attributes = {"memory": {"S": memory_text.dump(memory)}}
        return self.items.save(names.health_memory(group), attributes, version, now)
