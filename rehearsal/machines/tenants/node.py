"""A simulated shared host that runs the agent's ``watch`` and ``landlord``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from infra.catalogue import host_shapes
from rehearsal.machines.journal import Entry
from rehearsal.machines.machine import NodeContext, SimulatedHost
from rehearsal.machines.node import SimulatedNode
from rehearsal.machines.tenants.containers import Containers, is_running, tenant_of
from userdata.agent import tasks
from userdata.agent.machine.host import Argv, Variables
from userdata.agent.tenants.host.supervisor import TICK_SECONDS

_LIST: Final = "tenants.json"
_STILL_SECONDS: Final = 30.0
"""Seconds after the last changing command at which polling every second stops."""


class TenantHost(SimulatedHost):
    """See ``SimulatedHost``; each container that starts writes a line to its tenant's volume."""

    def __init__(self, instance_id: str, data: Path, context: NodeContext) -> None:
        super().__init__(instance_id, data, context)
        self._containers = Containers(self._changed)
        self._busy_at = 0.0

    def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
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
                return self._containers.run(argv, timeout, stdin, environment)
            case _:
                return super().run(argv, timeout, stdin, environment)

    @property
    def quiet_until(self) -> float:
        """Time until which only time passes; 0 after a recent change."""
        return math.inf if self._scheduler.now - self._busy_at > _STILL_SECONDS else 0.0

    def serves(self, tenants: int) -> bool:
        """Return whether this number of tenants runs."""
        return len(self._containers.pids()) == tenants

    def unmount_all(self) -> None:
        """See ``SimulatedHost``: kill the containers, and remove the mount of each tenant."""
        for name in list(self._containers.containers):
            self._containers.die(name)
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


class HostNode(SimulatedNode):
    """See ``SimulatedNode``; the machine has the catalogue's shape of its type."""

    host_type: type[SimulatedHost] = TenantHost
    _done_at = 0.0

    def _work(self, agent: tasks.Node) -> None:
        shape = host_shapes.shape(agent.identity.instance_type)
        agent.kernel, agent.shape = self._disk / "kernel", lambda: shape  # there is no control group
        agent.nvml = SimpleNamespace(
            NVMLError=RuntimeError,
            nvmlInit=lambda: None,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetUUID=lambda gpu: f"GPU-{gpu}",
        )
        agent.send, agent.run_in_background = lambda line: None, self._run_in_background
        self._unit(partial(tasks.shared_host, agent))

    def _run_in_background(self, work: Callable[[], None]) -> None:
        def run() -> None:
            work()
            self._done_at = self._scheduler.now

        self._tasks = [*(task for task in self._tasks if not task.done), self._start("aside", run)]

    def _quiet_until(self) -> float:
        """Return until when all listed tenants run and nothing changes."""
        assert isinstance(self._host, TenantHost)
        is_awaited = self._scheduler.now < self._done_at + 2 * TICK_SECONDS  # the agent's next pass takes it
        if self.ends or is_awaited or any(t.name.startswith("aside") and not t.done for t in self._tasks):
            return 0.0
        return self._host.quiet_until if self._host.serves(self._tenants()) else 0.0

    def _tenants(self) -> int:
        """Return the number of tenants in the agent's list, -1 if there is no list."""
        path = self._run_directory / _LIST
        return len(json.loads(path.read_text())["tenants"]) if path.exists() else -1
