"""Queues that the queue watcher polls; Pulumi writes the list into the function's environment."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contracts import codec
from contracts.stored import stored

HTTP: Final = "http"
"""Kind of the requests at a service's proxies, which are watched as a queue is."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WatchedQueue:
    """A group's queue.

    ``location`` is the account id for SQS, and the name of the secret with the broker's URL for RabbitMQ.
    ``management`` is the address of RabbitMQ's management API, empty if it follows from the broker's URL.
    Of the kind `HTTP` the location is empty: proxies are found by their tag. ``requests_per_worker`` is that
    of the metric that KEDA scales by; 0: it does not scale by this queue.
    """

    group: str
    kind: str
    name: str
    location: str
    management: str = ""
    requests_per_worker: int = 0


def dumps(queues: Iterable[WatchedQueue]) -> str:
    """Serialize compactly, as lists of values: a function's environment is limited to 4 KB."""
    return json.dumps(codec.dump(tuple(queues)), separators=(",", ":"))


def parse(text: str) -> tuple[WatchedQueue, ...]:
    """Parse the output of `dumps`."""
    return codec.parse_text(tuple[WatchedQueue, ...], text)
