"""Keep what the health checker remembers of a group in one item of the memory table."""

from __future__ import annotations

from dataclasses import dataclass

from contracts import names
from lambdas.aws.items import NO_NUMBER, VersionedItems
from lambdas.core.health import memory as memory_text
from lambdas.core.health.memory import HealthMemory


@dataclass(frozen=True, slots=True)
class RememberedHealth:
    """A memory as stored; ``version`` 0: nothing was. ``unreadable`` says why what was stored is lost."""

    memory: HealthMemory
    version: int = 0
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class HealthMemoryStore:
    """Reads and writes the health checker's items; a save over a newer one raises ``ConflictError``."""

    items: VersionedItems

    def load(self, group: str) -> RememberedHealth:
        """Return what is remembered of a group; nothing where that cannot be read."""
        item, version = self.items.load(names.health_memory(group))
        if item is None:
            return RememberedHealth(HealthMemory())
        if version == NO_NUMBER:
            return RememberedHealth(HealthMemory(), version, "its version is no number")
        try:
            return RememberedHealth(memory_text.parse(item["memory"]["S"]), version)
        except (ValueError, KeyError, TypeError) as error:
            return RememberedHealth(HealthMemory(), version, str(error))

    def save(self, group: str, memory: HealthMemory, version: int) -> int:
        """Store what is remembered over ``version``, and return its own."""
        attributes = {"memory": {"S": memory_text.dump(memory)}}
        return self.items.save(names.health_memory(group), attributes, version)
