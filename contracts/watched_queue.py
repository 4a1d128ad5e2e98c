"""Which queues are watched: the program writes the list into the watcher's environment."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from contracts import codec
from contracts.stored import stored


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WatchedQueue:
    """A group's queue: its ``kind``, its ``name``, and ``place``, by which its kind finds it.

    Of SQS the place is the account that the queue is in. Of RabbitMQ it is the name of the secret with the
    broker's URL, and ``management`` the address of its management API, empty where the URL says it.
    """

    group: str
    kind: str
    name: str
    place: str
    management: str = ""


def dumps(queues: Iterable[WatchedQueue]) -> str:
    """Return the list as text: lists of values, because a function's environment holds 4 KB."""
    return json.dumps(codec.dump(tuple(queues)), separators=(",", ":"))


def parse(text: str) -> tuple[WatchedQueue, ...]:
    """Return the list that `dumps` wrote."""
    return codec.parse_text(tuple[WatchedQueue, ...], text)
