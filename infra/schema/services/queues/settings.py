"""What every kind of queue says of itself, beside its keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, TypeAlias

from pydantic import Field

from contracts.agent import config as agent
from infra.schema.base import Model
from userdata.agent.aws.permissions import Need

OldestSeconds: TypeAlias = Annotated[int, Field(ge=60, le=604_800)]
"""How long a task may wait before somebody is told."""


class QueueSettings(Model):
    """A queue of one kind; its model also has ``kind``, ``existing`` and ``oldest_seconds``."""

    title: ClassVar[str]
    """What the kind is called in messages."""
    has_secret: ClassVar[bool]
    """Whether workers reach it by a URL in a secret; else by their role."""
    need: ClassVar[Need]
    """What its workers' network and instances must offer."""

    @property
    def most_waiting(self) -> int:
        """How many may wait; 0: no limit."""
        return 0

    @property
    def caller_groups(self) -> tuple[str, ...]:
        """Security groups of others that may reach it."""
        return ()

    @abstractmethod
    def for_workers(self, service: str, found: Mapping[str, str]) -> agent.Queue:
        """Return what the agent's configuration says of the queue of ``service``.

        ``found`` is what AWS names of it: ``DeclaredQueue.found``.
        """
