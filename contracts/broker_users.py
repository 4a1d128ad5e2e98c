"""Users of the brokers that a stack creates; Pulumi writes them into a function's environment."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contracts import codec
from contracts.stored import stored

ADMINISTRATOR: Final = "administrator"
"""Name of a broker's administrator in the function's event."""
ROTATE: Final = "rotate"
"""Key of the function's event: a list of the users to rotate at once."""


class BrokerRole(enum.Enum):
    """What a user is for; its permissions follow from it."""

    WORKERS = "workers"
    CLIENTS = "clients"
    MONITOR = "monitor"


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class BrokerQueue:
    """A queue of requests on a broker, as `spot_work` declares it."""

    name: str
    max_deliveries: int
    max_length: int


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class BrokerUser:
    """A user, and the name of the secret with its URL.

    ``queue`` is that of workers and clients. Workers also send requests to the queues ``calls``.
    """

    name: str
    role: BrokerRole
    secret: str
    queue: str = ""
    calls: tuple[str, ...] = ()


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class ManagedBroker:
    """A broker; ``administrator`` is the name of the secret with its administrator's URL."""

    administrator: str
    queues: tuple[BrokerQueue, ...]
    users: tuple[BrokerUser, ...]


def dumps(brokers: Iterable[ManagedBroker]) -> str:
    """Serialize compactly, as lists of values: a function's environment is limited to 4 KB."""
    return json.dumps(codec.dump(tuple(brokers)), separators=(",", ":"))


def parse(text: str) -> tuple[ManagedBroker, ...]:
    """Parse the output of `dumps`."""
    return codec.parse_text(tuple[ManagedBroker, ...], text)
