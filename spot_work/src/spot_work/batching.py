"""When is a batch complete? By size, or by the time that its first request may wait for others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class Batch:
    """At most ``size`` requests; the first waits at most ``seconds`` for others to come.

    Raises:
        ValueError: a size below 1, or seconds below 0.
    """

    size: int = 1
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size {self.size}, allowed: 1 or more")
        if not self.seconds >= 0:
            raise ValueError(f"seconds {self.seconds}, allowed: 0 or more")


def gather(
    batch: Batch, take: Callable[[float], _T | None], clock: Callable[[], float], patience: float
) -> list[_T]:
    """Return the next batch; empty if nothing came for ``patience`` seconds.

    ``take(seconds)`` returns what comes next, None if nothing does in that time. What has come already never
    waits for the clock: under load batches are full and wait for nothing.
    """
    first = take(patience)
    if first is None:
        return []
    found, end = [first], clock() + batch.seconds
    while len(found) < batch.size:
        another = take(max(end - clock(), 0.0))
        if another is None:
            break
        found.append(another)
    return found
