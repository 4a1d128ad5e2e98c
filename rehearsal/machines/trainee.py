"""A training process, simulated or real."""

from __future__ import annotations

from typing import Protocol


class Trainee(Protocol):
    """Interface to a training process, simulated or real."""

    pid: int
    first_step: int
    loads: float

    @property
    def step(self) -> int:
        """Number of completed steps."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        ...

    @property
    def next_checkpoint(self) -> float:
        """Time of the next periodic checkpoint; 0 while it stops."""
        ...

    @property
    def quiet_until(self) -> float:
        """Time until which it needs no poll."""
        ...

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        ...

    def signal(self, number: int) -> None:
        """Send it a signal."""
        ...
