"""The simulated machine of a shared host: mounts of the tenants' volumes, and containers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rehearsal.machines.journal import Entry
from rehearsal.machines.machine import SimulatedHost
from rehearsal.machines.tenants.containers import Containers, is_running, tenant_of

_STILL_SECONDS: Final = 30.0
"""Seconds after the last changing command at which polling every second stops."""


class TenantHost(SimulatedHost):
    """See ``SimulatedHost``; each container that starts writes a line to its tenant's volume."""

    _containers: Containers
    _busy_at: float

    def switch_on(self) -> None:
        """Start Docker."""
        self._containers = Containers(self._changed)
        self._busy_at = self._scheduler.now

    def run(self, argv: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        """See ``Host``: Docker and nftables are simulated."""
        match list(argv):
            case ["chown", *_]:
                return ""
            case [
                "docker" | "nft" | "systemctl" | "runc" | "containerd" | "nvidia-ctk" | "nvidia-smi",
                command,
                *_,
            ]:
                if command not in ("ps", "container", "version", "--version"):
                    self._busy_at = self._scheduler.now
                return self._containers.run(argv, stdin, environment)
            case _:
                return super().run(argv, stdin, environment)

    @property
    def quiet_until(self) -> float:
        """Time until which only time passes; 0 after a recent change."""
        return math.inf if self._scheduler.now - self._busy_at > _STILL_SECONDS else 0.0

    def serves(self, tenants: int) -> bool:
        """Return whether this number of tenants runs."""
        return len(self._containers.pids()) == tenants

    def died(self) -> None:
        """Terminate: kill the containers and remove the mounts."""
        for name in list(self._containers.containers):
            self._containers.die(name)
        self.unmount_all()

    def unmount_all(self) -> None:
        """See ``SimulatedHost``: a mount for each tenant."""
        homes = self._data / "tenants"
        for path in sorted(homes.iterdir()) if homes.is_dir() else ():
            if self.mounted(path):
                self.unmount(path)

    def _changed(self, container: Mapping[str, Any]) -> None:
        tenant, now = tenant_of(container), self._scheduler.now
        home: Path = self._data / "tenants" / tenant
        if is_running(container):
            with (home / "data" / "started.txt").open("a") as file:
                file.write(f"{now:.0f}\n")
        self._journal.note(
            Entry(
                now,
                "running" if is_running(container) else "stopped",
                self._instance,
                home.readlink().name if home.is_symlink() else "",
                self.zone,
                tenant=tenant,
            )
        )
