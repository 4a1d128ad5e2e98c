"""The rehearsal's Docker on a machine with real files; it records its commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rehearsal.machines.tenants.containers import Containers, options
from userdata.agent.machine.host import SystemHost

__all__ = ["DockerDouble", "options"]


class DockerDouble(Containers, SystemHost):
    """Records each command before it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[list[str]] = []

    def run(
        self,
        argv: Sequence[str],
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
        *,
        timeout: float = 60,
    ) -> str:
        self.ran.append(list(argv))
        return super().run(argv, stdin, environment, timeout=timeout)
