"""The rehearsal's Docker on a machine with real files; it records its commands."""

from __future__ import annotations

from rehearsal.machines.tenants.containers import Containers, options
from userdata.agent.machine.host import Argv, SystemHost, Variables

__all__ = ["DockerDouble", "options"]


class DockerDouble(Containers, SystemHost):
    """Records each command before it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[list[str]] = []

    def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
        self.ran.append(list(argv))
        return super().run(argv, timeout, stdin, environment)
