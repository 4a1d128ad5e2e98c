"""An operator's side of a queue: the interface that each transport implements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class QueueStatus:
    """A queue as the broker describes it; None: the broker does not say.

    ``waiting`` and ``in_work`` are requests, ``consumers`` are workers that take requests at present (one
    that runs a long batch may take none), ``oldest_seconds`` is the age of the oldest waiting request.
    """

    queue: str
    waiting: int | None
    in_work: int | None
    consumers: int | None
    oldest_seconds: float | None
    dead_letters: int | None


@dataclass(frozen=True)
class DeadLetter:
    """A request in the dead-letter queue; ``size`` is that of its body in bytes, as it is stored.

    ``reason`` and ``time`` (epoch seconds) say why and since when it is there: empty and None if unknown.
    """

    id: str
    reason: str
    time: float | None
    size: int


class QueueInspector(Protocol):
    """Reads a queue's status, lists its dead letters and sends them again.

    All methods raise `BrokerRefusedError` if the broker does not permit it or the queue does not exist, and
    ``ConnectionError`` if the broker is unreachable.
    """

    def status(self) -> QueueStatus:
        """Return the queue's status."""

    def dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters that no other client holds at the moment; all stay in their queue."""
        return [letter for letter, _ in self._visit(lambda _: False)]

    def resend(self, ids: Collection[str] | None) -> Iterator[str]:
        """Send dead letters again, those with these ids or all, and yield the id of each.

        One is removed only after the broker has confirmed the new request. It is marked as a repeat, and has
        neither a deadline nor a reply queue: nothing waits for it, and if it fails it is a dead letter again.
        Those that arrive meanwhile stay.

        Raises:
            QueueFullError: the queue is full; the dead letter stays.
        """
        for letter, is_sent in self._visit(lambda id_: ids is None or id_ in ids):
            if is_sent:
                yield letter.id

    def close(self) -> None:
        """Close what outlives a call: nothing."""

    def _visit(self, is_selected: Callable[[str], bool]) -> Iterator[tuple[DeadLetter, bool]]:
        """Send the selected dead letters again; yield all of this moment, and whether each was sent."""
