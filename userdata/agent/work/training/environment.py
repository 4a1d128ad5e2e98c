"""What a job's command runs in: the machine image's own programs, a Python of its own, or a container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Start:
    """How a command is started: all of its arguments, and all of its environment."""

    argv: list[str]
    environment: dict[str, str]


class Workplace(Protocol):
    """Where a job's command runs."""

    @property
    def user(self) -> str:
        """As whom it is started; empty: as we are."""
        ...

    def clear(self) -> None:
        """End what an earlier start left running: it holds the job's folders."""
        ...

    def prepare(self) -> None:
        """Bring here what is missing; raises `AgentError` where that cannot be."""
        ...

    def start(self, command: list[str], environment: Mapping[str, str], place: Path) -> Start:
        """Return how ``command`` is started in the folder ``place``."""
        ...


@dataclass(frozen=True)
class OfTheImage:
    """What the machine image has."""

    user: str

    def clear(self) -> None:
        """See ``Workplace``: what it ran ended with the agent's unit."""

    def prepare(self) -> None:
        """See ``Workplace``: all is here."""

    def start(self, command: list[str], environment: Mapping[str, str], place: Path) -> Start:
        """See ``Workplace``."""
        return Start(command, dict(environment))
