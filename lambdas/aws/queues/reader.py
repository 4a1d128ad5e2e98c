"""The interface of a queue reader."""

from __future__ import annotations

from typing import Protocol

from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.core.queues.history import QueueHistory


class QueueReader(Protocol):
    """Reads the state of queues of one kind."""

    def observe(
        self, queue: WatchedQueue, history: QueueHistory, now: float, timeout: float
    ) -> tuple[QueueState | None, QueueHistory]:
        """Return the queue's state at ``now``, None while unknown, and the history for the next call.

        Takes about ``timeout`` seconds at most. Raises any exception if the queue is unreachable, with a
        message of one line.
        """
        ...
