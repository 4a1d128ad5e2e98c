"""Environments for a job's command: the machine image, a Python environment, or a container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class CommandLine:
    """The arguments and the whole environment of a command."""

    argv: list[str]
    environment: dict[str, str]


class JobEnvironment(Protocol):
    """The environment that a job's command runs in."""

    @property
    def user(self) -> str:
        """User to start the command as; empty: the agent's user."""
        ...

    def clear(self) -> None:
        """End processes of an earlier start, which use the job's directories."""
        ...

    def prepare(self) -> None:
        """Install missing dependencies; raise `AgentError` if that fails."""
        ...

    def start(self, command: list[str], environment: Mapping[str, str], directory: Path) -> CommandLine:
        """Return the command line that runs ``command`` in ``directory``."""
        ...


@dataclass(frozen=True)
class HostEnvironment:
    """The programs of the machine image."""

    user: str

    def clear(self) -> None:
        """No-op: systemd ended its processes with the agent's unit."""

    def prepare(self) -> None:
        """No-op: nothing to install."""

    def start(self, command: list[str], environment: Mapping[str, str], directory: Path) -> CommandLine:
        """Return ``command`` unchanged."""
        return CommandLine(command, dict(environment))
