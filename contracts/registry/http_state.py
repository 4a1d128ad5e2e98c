"""Requests of a service with ``http``, over all of its proxies.

Written by the queue watcher, read by the health checker and the scaler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts import codec, names
from contracts.registry import queue_state
from contracts.registry.proxy_state import check_numbers
from contracts.registry.queue_state import RETENTION_SECONDS, QueueState
from contracts.stored import stored

SORT_KEY: Final = "http"
"""Sort key of the item, in the partition of a queue's state."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WorkerTraffic:
    """Requests of one worker, over all proxies.

    Attributes:
        instance, slot: The worker.
        since: Start of the process that is counted (epoch seconds), as in its item of the registry.
        done: Requests answered since then, failed ones included.
        failed: Those with a status of 5xx or cut off.
        seconds: Time that the means below cover, up to `batches.WINDOW_SECONDS`; 0: they are unknown.
        rate, failed_rate: Mean of the requests per second, and of those that failed.
        busy: Share of the time with at least one request.
        in_flight: Mean number of requests, over all of the time.
    """

    instance: str
    slot: int
    since: float
    done: int
    failed: int
    seconds: float
    rate: float
    failed_rate: float
    busy: float
    in_flight: float

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        means = (self.since, self.seconds, self.rate, self.failed_rate, self.busy, self.in_flight)
        counts = (self.slot, self.failed, self.done - self.failed)
        parts = (self.rate - self.failed_rate, 1 - self.busy)
        check_numbers(f"requests of {self.instance}/{self.slot}", *counts, *means, *parts)


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class HttpState:
    """Requests at all proxies of a service at ``observed_at`` (epoch seconds).

    Attributes:
        waiting: Requests for which no worker has room.
        in_flight: Requests at workers.
        oldest_seconds: Time that the oldest waiting request has waited; a lower bound.
        arrival_rate: Requests per second that were received.
        end_rate: Requests per second that workers answered.
        refused_rate: Requests per second that the proxies answered with 503, because no worker took them.
        proxies: Proxies that receive requests.
        unreadable: How many of them are unknown; each is counted as the busiest of the others, or as before.
        workers: Requests by worker, of those whose check succeeds at a proxy.
    """

    observed_at: float
    waiting: int
    in_flight: int
    oldest_seconds: float
    arrival_rate: float
    end_rate: float
    refused_rate: float
    proxies: int
    unreadable: int = 0
    workers: tuple[WorkerTraffic, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        check_numbers("the state of a service's proxies", self.proxies, self.unreadable, self.refused_rate)
        _ = self.queue

    @property
    def queue(self) -> QueueState:
        """The requests as those of a queue: what waits at the proxies is ready, workers are its consumers."""
        return QueueState(
            self.observed_at,
            self.waiting,
            self.in_flight,
            self.oldest_seconds,
            self.arrival_rate,
            self.end_rate,
            len(self.workers),
        )

    def is_fresh(self, now: float) -> bool:
        """Return whether the state is not stale."""
        return self.queue.is_fresh(now)


def key(group: str) -> dict[str, Any]:
    """Return the key of the item."""
    return {**queue_state.key(group), names.REGISTRY_SORT_KEY: {"S": SORT_KEY}}


def dump(group: str, state: HttpState) -> dict[str, Any]:
    """Return the whole item."""
    return {
        **key(group),
        **codec.dump_item(state),
        names.TTL: codec.attribute(int(state.observed_at) + RETENTION_SECONDS),
    }


def parse(item: Mapping[str, Any]) -> HttpState:
    """Parse an item; raise `ContractError` if it is invalid."""
    return codec.parse_item(HttpState, item, "malformed item of a service's proxies")
