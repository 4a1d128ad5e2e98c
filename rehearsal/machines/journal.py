"""Journal of events of nodes and volumes, from which migrations are derived."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rehearsal.results.moves import Contents

Kind = Literal[
    "notice",  # interruption notice of an instance
    "released",  # an instance is terminated by its group
    "gone",  # an instance has terminated
    "mounted",
    "unmounted",  # by the agent, or by the end of its instance
    "running",  # the training process has started at `step`
    "stopped",  # it has ended at `step`
    "created",  # a volume, in `zone`, from `snapshot` if there is one; `zone` of a mount is EFS's only
    "attaching",
    "free",  # the volume is detached
    "deleted",
    "snapshot",  # has started
    "copied",  # a snapshot is complete
]


@dataclass(frozen=True, slots=True)
class Entry:
    """An event at ``at`` (epoch seconds); fields that do not apply are empty."""

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
    """The tenant whose container has started or ended, on a shared host."""


@dataclass(slots=True)
class Journal:
    """Entries in chronological order."""

    entries: list[Entry] = field(default_factory=list)

    def note(self, entry: Entry) -> None:
        """Add an entry."""
        self.entries.append(entry)
