"""Batches: when one is complete, and what is delivered ahead of it and goes back behind a long one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from spot_work.queue import threads
from spot_work.queue.consumer import RequestConsumer

LONG_SECONDS: Final = 0.2
"""Duration of a batch from which on nothing is delivered ahead, and nothing waits behind it."""
_CHECK_SECONDS: Final = 0.1
"""Time between two looks at the running batch."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Batch:
    """Up to ``size`` requests; the first waits up to ``seconds`` for more.

    Raises:
        ValueError: size below 1, or seconds below 0.
    """

    size: int = 1
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be 1 or more, not {self.size}")
        if not self.seconds >= 0:
            raise ValueError(f"seconds must be 0 or more, not {self.seconds}")


def size_within(timeout: float | None, batch: Batch, size: int, count: int, seconds: float) -> int:
    """Return the maximum size of the next batch after one of ``count`` requests that ran for ``seconds``.

    A batch must not run for more than half of ``timeout``, after which the queue delivers its requests again;
    None, if that is unknown, limits nothing. ``size`` was the maximum before; it returns to the batch's.
    """
    if timeout is not None and count > 1 and seconds > timeout / 2:
        return max(int(count * timeout / 2 / seconds), 1)
    is_fast = timeout is None or seconds < timeout / 8
    return min(2 * size, batch.size) if is_fast and count >= size else size


class BatchTable:
    """Counts batches since the worker's start by their size: 1, 2, up to 4, up to 8, and so on.

    Safe to use from many threads.
    """

    _MAX_SIZE: Final = 4096

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[int, tuple[int, int, float, int]] = {}

    def record(self, size: int, seconds: float, waiting: int) -> None:
        """Count a batch of ``size`` requests that ran for ``seconds``.

        ``waiting`` requests had been delivered to the worker and were not part of it when it began.
        """
        max_size = min(1 << (size - 1).bit_length(), self._MAX_SIZE)
        with self._lock:
            batches, requests, total, waited = self._rows.get(max_size, (0, 0, 0.0, 0))
            self._rows[max_size] = (batches + 1, requests + size, total + seconds, waited + waiting)

    def rows(self) -> list[list[float]]:
        """Return ``[max_size, batches, requests, seconds, waiting]`` of each size, smallest first."""
        with self._lock:
            rows = sorted(self._rows.items())
        return [
            [max_size, batches, requests, round(seconds, 3), waiting]
            for max_size, (batches, requests, seconds, waiting) in rows
        ]


class Prefetch:
    """How many requests a worker has delivered: what it can begin at once, if its batches are long.

    A request that is delivered to a busy worker waits for its batch, while another worker may be idle. While
    a long batch runs, nothing more is delivered; the next is delivered when it has ended. Shorter batches are
    delivered ahead, because the delivery would take as long as they do; of the shortest many, because what
    is delivered, answered and acknowledged together costs less.

    Args:
        size: maximum requests of a batch.
        overflow_threads: requests that an overflow function may have beside them.
        max_batches_ahead: batches to deliver ahead of the shortest ones.
    """

    _WORK_SECONDS: Final = 0.04
    """Work to deliver ahead, by the mean duration; more only as a single batch."""
    _AHEAD_SECONDS: Final = LONG_SECONDS / 2
    """Mean below which batches are delivered ahead, until it is that of long ones."""
    _MAX_REQUESTS: Final = 128
    """More than two batches are delivered only up to this number of requests, which are in memory."""
    _WEIGHT: Final = 0.1

    def __init__(self, size: int, *, overflow_threads: int = 0, max_batches_ahead: int = 1) -> None:
        self._size = size
        self._overflow_threads = overflow_threads
        self._max_ahead = max(1, min(max_batches_ahead, self._MAX_REQUESTS // size - 1))
        self._ahead = 1
        """Batches to deliver ahead of short ones."""
        self.is_ahead = False
        """Whether the next batch is delivered while one runs."""
        self._mean_seconds = 2 * LONG_SECONDS
        """Mean duration of the last batches; they are long until they are known."""

    @property
    def idle(self) -> int:
        """Requests to have while no batch runs."""
        if not self.is_ahead:
            return self._size + self._overflow_threads
        return self._size * (1 + self._ahead) + self._overflow_threads

    def running(self, batch: int) -> int:
        """Return the requests to have while a batch of this size runs; 0: deliver none.

        A worker with a full batch gets none, because all it may have are in the batch.
        """
        return self.idle if self.is_ahead or (batch >= self._size and not self._overflow_threads) else 0

    def record(self, seconds: float) -> None:
        """Count the duration of a batch."""
        self._mean_seconds += self._WEIGHT * (seconds - self._mean_seconds)
        fitting = min(self._WORK_SECONDS / max(self._mean_seconds, 1e-6), self._max_ahead)
        # Each change cancels consumers: only for less than half as much, or twice.
        if not self._ahead / 2 <= fitting < self._ahead * 2:
            self._ahead = max(int(fitting), 1)
        limit = LONG_SECONDS if self.is_ahead else self._AHEAD_SECONDS
        self.is_ahead = self._mean_seconds < limit


class HandBack:
    """Watches the running batch from a thread; the consumer hands back what waits behind a long one."""

    def __init__(self, consumer: RequestConsumer) -> None:
        self._consumer = consumer
        self._lock = threading.Lock()
        """Held while the consumer hands back, so that it does not do so after the batch has ended."""
        self._started_at: float | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start to watch, until `stop`."""
        threads.start("spot-work-hand-back", self._watch, lambda _: None)  # then nothing is handed back

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def __enter__(self) -> None:
        """Watch the batch that runs in this context."""
        self._started_at = time.monotonic()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._started_at = None

    def check(self) -> None:
        """Hand back what waits, if the running batch is long."""
        with self._lock:
            started_at = self._started_at
            if started_at is None or time.monotonic() - started_at < LONG_SECONDS:
                return
            if self._consumer.waiting_count:
                self._consumer.hand_back()

    def _watch(self) -> None:
        while not self._stopped.wait(_CHECK_SECONDS):
            self.check()


def gather(
    batch: Batch,
    receive: Callable[[float], _T | None],
    clock: Callable[[], float],
    timeout: float,
    in_delivery_seconds: float = 0.0,
) -> list[_T]:
    """Return the next batch; empty if nothing arrives within ``timeout`` seconds.

    With ``in_delivery_seconds`` it waits so long for each next item: they may be on their way.

    ``receive(seconds)`` returns the next item, or None if none arrives in that time. Items that have already
    arrived are taken without waiting, so under load batches are full at once.
    """
    first = receive(timeout)
    if first is None:
        return []
    items, end = [first], clock() + batch.seconds
    while len(items) < batch.size:
        item = receive(max(end - clock(), in_delivery_seconds))
        if item is None:
            break
        items.append(item)
    return items
