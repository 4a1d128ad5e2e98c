"""A training process, simulated or real, and what runs real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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


class RealCommands(Protocol):
    """Runs a job's commands really, in place of simulated ones; ``disk`` is the instance's own disk."""

    def runs(self, argv: Sequence[str]) -> bool:
        """Return whether it runs a command of the agent's."""
        ...

    def run(self, argv: Sequence[str], environment: Mapping[str, str], disk: Path) -> str:
        """Run a command of the agent's and return its output; raise ``AgentError`` if it fails."""
        ...

    def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        disk: Path,
        cwd: Path,
        clock: Callable[[], float],
    ) -> Trainee:
        """Start the job's command; ``clock`` returns simulated time."""
        ...
