"""The interface of a queue reader, and the readers by ``services[].queue.kind``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues import rabbitmq, sqs
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


KINDS: Final[Mapping[str, Callable[[Callable[[str], Any]], QueueReader]]] = {
    "rabbitmq": rabbitmq.reader,
    "sqs": sqs.reader,
}
"""Factories; the argument returns the boto3 client of a service by its name."""
