"""A training process, simulated or real."""

from __future__ import annotations

from typing import Protocol


class Trainee(Protocol):
    """A training process as the rehearsal sees it, simulated or real."""

    pid: int
    first_step: int
    loads: float

    @property
    def step(self) -> int:
        """The steps that are done."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        ...

    @property
    def next_checkpoint(self) -> float:
        """When it next writes one by itself; not at all while it stops."""
        ...

    @property
    def quiet_until(self) -> float:
        """Until when it needs nobody."""
        ...

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        ...

    def signal(self, number: int) -> None:
        """Send it a signal."""
        ...
