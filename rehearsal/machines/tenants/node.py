"""A simulated shared host that runs the agent's ``watch`` and ``landlord``."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from infra.catalogue import host_shapes
from rehearsal.machines.journal import Entry
from rehearsal.machines.machine import SimulatedHost
from rehearsal.machines.node import SimulatedNode
from rehearsal.machines.scheduler import SimulatedTask
from rehearsal.machines.tenants.machine import TenantHost
from userdata.agent import tasks

_LIST: Final = "tenants.json"


class HostNode(SimulatedNode):
    """See ``SimulatedNode``; the machine has the catalogue's shape of its type."""

    host_type: type[SimulatedHost] = TenantHost
    _is_on = False
    _listed: tuple[int, int] = (0, 0)

    def end(self) -> None:
        """See ``SimulatedNode``: kills the containers, too."""
        if not self._is_on:
            super().end()
            return
        self._scheduler.end(self._tasks)
        self._machine.died()
        self._journal.note(Entry(self._scheduler.now, "gone", self.id))

    @property
    def _machine(self) -> TenantHost:
        return cast(TenantHost, self._host)

    def _work(self, agent: tasks.Node) -> None:
        shape = host_shapes.shape(agent.identity.instance_type)
        self._machine.switch_on()
        self._is_on = True
        agent.kernel, agent.shape = self._disk / "kernel", lambda: shape  # there is no control group
        agent.nvml = _Nvml()
        agent.send, agent.run_in_background = lambda line: None, self._run_in_background
        self._unit(partial(tasks.shared_host, agent))

    def _run_in_background(self, work: Callable[[], None]) -> None:
        self._tasks = [task for task in self._tasks if not task.done]
        self._tasks.append(self._start("aside", work))

    def _quiet_until(self) -> float:
        """Return until when all listed tenants run and nothing changes."""
        if not self._is_on or self.ends or any(map(_runs_in_background, self._tasks)):
            return 0.0
        return self._machine.quiet_until if self._machine.serves(self._tenants()) else 0.0

    def _unnoticed_until(self) -> float:
        return 0.0

    def _tenants(self) -> int:
        """Return the number of tenants in the agent's list, -1 if there is no list."""
        path = self._run_directory / _LIST
        if not path.exists():
            return -1
        changed = path.stat().st_mtime_ns
        if self._listed[0] != changed:
            self._listed = changed, len(json.loads(path.read_text())["tenants"])
        return self._listed[1]


class _Nvml:
    """The functions of ``pynvml`` that return a GPU's UUID."""

    NVMLError = RuntimeError

    def nvmlInit(self) -> None:  # noqa: N802 - the names are pynvml's
        """See pynvml."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        """See pynvml."""
        return index

    def nvmlDeviceGetUUID(self, gpu: int) -> str:  # noqa: N802
        """See pynvml."""
        return f"GPU-{gpu}"


def _runs_in_background(task: SimulatedTask) -> bool:
    return task.name.startswith("aside") and not task.done
