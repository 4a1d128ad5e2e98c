"""How a group's queue stands: whoever can reach the queue writes it, health checker and scaler read it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from contracts import codec, names
from contracts.stored import stored

KEPT_SECONDS: Final = 604_800
"""Who has no queue any more has no row of it after a week."""
STALE_SECONDS: Final = 180.0
"""What was told longer ago is not believed: its watcher looks each minute."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Backlog:
    """A queue as seen at ``at`` (epoch seconds).

    ``ready`` requests wait and ``taken`` are with workers; the oldest waits for ``oldest`` seconds, or at
    least so long where the queue does not tell. ``arriving`` and ``leaving`` are requests a second.
    ``readers`` are the connections that take from it.
    """

    at: float
    ready: int
    taken: int
    oldest: float
    arriving: float
    leaving: float
    readers: int

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what no queue can be like."""
        if not all(math.isfinite(getattr(self, f.name)) and getattr(self, f.name) >= 0 for f in fields(self)):
            raise ValueError("all that is told of a queue must be finite, 0 or more")

    def is_fresh(self, now: float) -> bool:
        """Tell whether the queue is believed to stand so now."""
        return abs(now - self.at) <= STALE_SECONDS


def key(group: str) -> dict[str, Any]:
    """Return the key of the one item that tells of a group's queue."""
    return {names.REGISTRY_KEY: {"S": names.queue_partition(group)}, names.REGISTRY_SORT_KEY: {"S": "queue"}}


def dump(group: str, backlog: Backlog) -> dict[str, Any]:
    """Return the whole item."""
    return {
        **key(group),
        **codec.dump_item(backlog),
        names.REGISTRY_TTL: codec.attribute(int(backlog.at) + KEPT_SECONDS),
    }


def parse(item: Mapping[str, Any]) -> Backlog:
    """Read an item; raise `ContractError` for one that makes no sense."""
    return codec.parse_item(Backlog, item, "malformed item of a queue")
