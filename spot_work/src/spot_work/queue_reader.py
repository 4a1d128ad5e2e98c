"""What a worker needs of a queue: each transport has one such source."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spot_work.message import Message, Request


@dataclass(frozen=True)
class Taken:
    """A request, and how its source knows it."""

    request: Request
    delivery: Any


@dataclass(frozen=True)
class Said:
    """What is said of a request: the answer; without one none goes out."""

    taken: Taken
    answer: Message | None = None


class Source(Protocol):
    """Takes requests from a queue until it is told to stop, and gives answers.

    What was taken is the worker's until it says, hands back or buries it; what it never does so with, because
    it was lost, comes to another one.
    """

    is_connected: threading.Event
    """Set once requests could come."""

    def take(self, seconds: float) -> Taken | None:
        """Return the next request, None if none comes in so many seconds.

        Raises:
            BrokerRefusedError: the broker refuses us.
            ConnectionError: it could not be reached for too long.
        """
        ...

    def say(self, answers: Sequence[Said]) -> None:
        """Send answers; a request is settled once the broker has its answer. Returns at once."""
        ...

    def hand_back(self, taken: Sequence[Taken]) -> None:
        """Give requests back to the queue, for others."""
        ...

    def bury(self, taken: Taken) -> None:
        """Move a request to the queue of the dead."""
        ...

    def stop(self) -> None:
        """Take no more, and hand back what has come and was not taken."""
        ...

    def close(self, seconds: float) -> None:
        """Wait until all that was said is settled, so many seconds at most, and close."""
        ...
