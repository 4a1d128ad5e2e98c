"""What reads queues of one kind for the queue watcher."""

from __future__ import annotations

from typing import Protocol

from contracts.registry.queue_state import Backlog
from contracts.watched_queue import WatchedQueue
from lambdas.core.queues.history import QueueHistory


class Reader(Protocol):
    """Looks at queues of one kind."""

    def look(
        self, queue: WatchedQueue, past: QueueHistory, at: float, seconds: float
    ) -> tuple[Backlog | None, QueueHistory]:
        """Return how a queue stands at ``at`` and what to remember until the next look.

        None where that cannot be said yet. Takes about ``seconds`` at most; raises any exception where the
        queue cannot be seen, with one line that says why.
        """
        ...
