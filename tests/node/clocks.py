"""A clock that tests move."""

from __future__ import annotations

from collections.abc import Callable


class FakeClock:
    """Wall and monotonic time that only `sleep`, `advance` and `jump` move."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._wall = wall
        self._monotonic = 1000.0
        self.on_sleep: Callable[[float], None] = lambda seconds: None

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(max(seconds, 0.0))
        self.on_sleep(seconds)

    def advance(self, seconds: float) -> None:
        self._wall += seconds
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as chrony or a person does."""
        self._wall += seconds
