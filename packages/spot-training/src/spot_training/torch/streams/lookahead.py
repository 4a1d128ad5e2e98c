"""Batches fetched ahead, so that the end of an epoch of unknown length is known before its last batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from spot_training.torch import state


class Lookahead:
    """An iterator over batches that fetches ``count`` more than it has returned.

    It restores this process's random numbers: a loader without workers draws samples in it, and others draw
    one when they start.
    """

    def __init__(self, batches: Iterator[Any], count: int) -> None:
        self._batches, self._count = batches, count
        self._queue: deque[Any] = deque()
        self._is_over = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._fill()
        if not self._queue:
            raise StopIteration
        return self._queue.popleft()

    @property
    def is_empty(self) -> bool:
        """Whether all batches have been returned."""
        return self._is_over and not self._queue

    def remaining(self) -> int | None:
        """Return the number of batches to come; None if there are more than it fetches ahead."""
        self._fill()
        return len(self._queue) if self._is_over else None

    def _fill(self) -> None:
        while not self._is_over and len(self._queue) < self._count:
            before = state.randomness()
            try:
                self._queue.append(next(self._batches))
            except StopIteration:
                self._is_over = True
            finally:
                state.set_randomness(before)
