"""State of a group's queue, written by the queue watcher, read by the health checker and the scaler."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from contracts import codec, names
from contracts.stored import Stored, stored

RETENTION_SECONDS: Final = 604_800
"""The item of a removed queue expires after a week."""
STALE_SECONDS: Final = 180.0
"""Age at which the state is stale; the watcher polls every minute."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue at ``observed_at`` (epoch seconds).

    ``ready`` messages wait and ``in_flight`` are delivered but not acknowledged. ``oldest_seconds`` is the
    age of the oldest waiting message, a lower bound if the broker does not report it. ``publish_rate`` and
    ``ack_rate`` are messages per second; ``consumers`` are connections that consume from the queue. What is
    unknown is None, never a number.
    """

    observed_at: Annotated[float, Stored("at")]
    ready: int
    in_flight: Annotated[int, Stored("taken")]
    oldest_seconds: Annotated[float | None, Stored("oldest")] = None
    publish_rate: Annotated[float | None, Stored("arriving")] = None
    ack_rate: Annotated[float | None, Stored("leaving")] = None
    consumers: Annotated[int | None, Stored("readers")] = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        values = (getattr(self, field.name) for field in fields(self))
        if not all(value is None or (math.isfinite(value) and value >= 0) for value in values):
            raise ValueError("the state of a queue must consist of finite numbers ≥ 0")

    def is_fresh(self, now: float) -> bool:
        """Return whether the state is not stale."""
        return abs(now - self.observed_at) <= STALE_SECONDS


def key(group: str) -> dict[str, Any]:
    """Return the key of the item of a group's queue."""
    return {names.REGISTRY_KEY: {"S": names.queue_partition(group)}, names.REGISTRY_SORT_KEY: {"S": "queue"}}


def dump(group: str, state: QueueState) -> dict[str, Any]:
    """Return the whole item."""
    return {
        **key(group),
        **codec.dump_item(state),
        names.TTL: codec.attribute(int(state.observed_at) + RETENTION_SECONDS),
    }


def parse(item: Mapping[str, Any]) -> QueueState:
    """Parse an item; raise `ContractError` if it is invalid."""
    return codec.parse_item(QueueState, item, "malformed item of a queue")
