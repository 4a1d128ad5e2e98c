"""What happened to nodes and their volumes, in order of time: from it the moves are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rehearsal.results.moves import Contents

Kind = Literal[
    "notice",  # AWS announces the end of an instance
    "released",  # the controller ends an instance
    "gone",  # an instance has ended
    "mounted",
    "unmounted",  # by the agent, or because its machine is gone
    "running",  # the training process has started, from `step`
    "stopped",  # it has ended, at `step`
    "created",  # a volume, in `zone`, from `snapshot` if there is one; `zone` of a mount is EFS's only
    "attaching",
    "free",  # no instance holds the volume any more
    "deleted",
    "snapshot",  # has begun
    "copied",  # a snapshot is complete
]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened at ``at`` (epoch seconds); what it does not concern is left empty."""

    at: float
    kind: Kind
    instance: str = ""
    volume: str = ""
    zone: str = ""
    snapshot: str = ""
    step: int = 0
    loads: float = 0.0
    """Seconds from the start of training to its first step."""
    contents: Contents | None = None
    tenant: str = ""
    """Whose container has started or ended, on a shared host."""


@dataclass(slots=True)
class Journal:
    """Entries in the order in which they were made."""

    entries: list[Entry] = field(default_factory=list)

    def note(self, entry: Entry) -> None:
        """Add an entry."""
        self.entries.append(entry)
