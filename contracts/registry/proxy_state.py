"""Requests at a proxy of a service with ``http``, written by the proxy's agent, read by the queue watcher."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts import codec, names
from contracts.registry import item as registry_item
from contracts.stored import stored

WRITE_SECONDS: Final = 10.0
"""Interval at which a proxy writes its item."""
STALE_SECONDS: Final = 60.0
"""Age at which an item is stale; requests at its proxy are then unknown."""
RETENTION_SECONDS: Final = 3600
"""The item of a terminated proxy expires after an hour."""
_SORT_KEY: Final = "proxy"


def check_numbers(label: str, *numbers: float) -> None:
    """Raise ``ValueError`` unless all numbers are finite and 0 or more."""
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError(f"{label} must be finite and 0 or more, not {numbers}")


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WorkerRequests:
    """Requests of one worker at this proxy, counted since the proxy first had it.

    ``done`` are answered ones, those with a status of 5xx or cut off included; ``failed`` are the latter.
    ``busy_seconds`` is the time in which it had at least one request of this proxy, ``request_seconds`` the
    sum of the requests' times; ``in_flight`` are at the worker now.
    """

    instance: str
    slot: int
    done: int
    failed: int
    in_flight: int
    busy_seconds: float
    request_seconds: float

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        counts = (self.slot, self.failed, self.done - self.failed, self.in_flight)
        check_numbers(
            f"requests of {self.instance}/{self.slot}", *counts, self.busy_seconds, self.request_seconds
        )


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class ProxyState:
    """Requests at one proxy at ``observed_at`` (epoch seconds); counts are since ``started_at``.

    Attributes:
        waiting: Requests for which no worker has room.
        in_flight: Requests at workers.
        oldest_seconds: Time that the oldest waiting request has waited; a lower bound.
        arrived: Requests received.
        ended: Requests answered by workers.
        refused: Requests answered with 503 by the proxy, because no worker took them in time.
        cut: Requests whose worker was lost and that were not repeated; of unknown ones the upper bound.
        repeated: Requests sent to another worker after theirs was lost.
        workers: Requests by worker; workers without a check that succeeded are not in it.
    """

    observed_at: float
    started_at: float
    waiting: int
    in_flight: int
    oldest_seconds: float
    arrived: int
    ended: int
    refused: int = 0
    cut: int = 0
    repeated: int = 0
    workers: tuple[WorkerRequests, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        counts = (
            self.waiting,
            self.in_flight,
            self.arrived,
            self.ended,
            self.refused,
            self.cut,
            self.repeated,
        )
        times = (self.observed_at, self.started_at, self.oldest_seconds)
        check_numbers("the state of a proxy", *counts, *times)

    def is_fresh(self, now: float) -> bool:
        """Return whether the state is not stale."""
        return abs(now - self.observed_at) <= STALE_SECONDS


def key(group: str, writer: str) -> dict[str, Any]:
    """Return the key of a proxy's item; ``writer`` is the ARN of its instance, see `registry_item`."""
    partition = registry_item.partition(names.proxy_partition(group), writer)
    return {names.REGISTRY_KEY: {"S": partition}, names.REGISTRY_SORT_KEY: {"S": _SORT_KEY}}


def dump(group: str, writer: str, state: ProxyState) -> dict[str, Any]:
    """Return the whole item."""
    return {
        **key(group, writer),
        **codec.dump_item(state),
        names.TTL: codec.attribute(int(state.observed_at) + RETENTION_SECONDS),
    }


def parse(item: Mapping[str, Any]) -> ProxyState:
    """Parse an item; raise `ContractError` if it is invalid."""
    return codec.parse_item(ProxyState, item, "malformed item of a proxy")
