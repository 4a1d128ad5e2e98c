"""Batches: complete by size, or when the first request has waited long enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

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
            raise ValueError(f"size {self.size}, allowed: 1 or more")
        if not self.seconds >= 0:
            raise ValueError(f"seconds {self.seconds}, allowed: 0 or more")


def gather(
    batch: Batch, receive: Callable[[float], _T | None], clock: Callable[[], float], timeout: float
) -> list[_T]:
    """Return the next batch; empty if nothing arrives within ``timeout`` seconds.

    ``receive(seconds)`` returns the next item, or None if none arrives in that time. Items that have already
    arrived are taken without waiting, so under load batches are full at once.
    """
    first = receive(timeout)
    if first is None:
        return []
    items, end = [first], clock() + batch.seconds
    while len(items) < batch.size:
        item = receive(max(end - clock(), 0.0))
        if item is None:
            break
        items.append(item)
    return items
