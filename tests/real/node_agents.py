"""Instances of a job of several nodes that run real commands, with the shipped agent on each.

An agent runs in a thread, its clock ten times as fast, so that a lease expires in 12 s. A lost instance stops
at its next look at the clock and its processes are killed at once, so its lease stays.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.node import configs
from tests.node.node_instances import SharedTables, instance
from tests.node.world import KilledError
from tests.real.environments import variables
from userdata.agent import tasks
from userdata.agent.machine.host import SystemHost
from userdata.agent.work import notice

_SPEED: Final = 10.0
_MARK: Final = "PLAYED_INSTANCE"
_BEGAN: Final = time.monotonic()
_BEGAN_AT: Final = time.time()


class _Clock:
    def __init__(self, instance: NodeInstance) -> None:
        self._instance = instance

    def wall(self) -> float:
        return _BEGAN_AT + self.monotonic()

    def monotonic(self) -> float:
        return (time.monotonic() - _BEGAN) * _SPEED

    def sleep(self, seconds: float) -> None:
        if self._instance.is_lost:
            raise KilledError(self._instance.name)
        time.sleep(max(seconds, 0.0) / _SPEED)


class _Host(SystemHost):
    def run(self, argv: Sequence[str], stdin: str = "", environment: Any = None) -> str:
        return configs.REVISION if "rev-parse" in argv else "990\n"

    def mounted(self, path: Path) -> str | None:
        return "127.0.0.1:/"

    def unmount(self, path: Path) -> None:
        pass


class NodeInstance:
    """An instance with its agent; ``command`` runs in ``folder``, whose checkpoints all instances see."""

    def __init__(
        self, tables: SharedTables, name: str, folder: Path, python: Path, command: Sequence[str], nodes: Any
    ) -> None:
        self.name, self._folder, self._python = name, folder, python
        self.is_lost = False
        self.processes: list[subprocess.Popen[bytes]] = []
        self.error: BaseException | None = None
        self._handlers: list[Any] = []
        self.node = instance(
            tables,
            name,
            folder / "instances" / name,
            _Clock(self),
            _Host(),
            command=[*command],
            nodes=nodes,
            environment={"SPOT_TRAINING_ADDRESS": "127.0.0.1"},
        )
        self.node.data = folder / "data"
        self.node.mount = lambda: None  # type: ignore[method-assign]
        self.node.on_sigterm = self._handlers.append
        self.node.spawn = self._spawn
        self.thread = threading.Thread(target=self._live, name=name, daemon=True)
        self.thread.start()

    def _live(self) -> None:
        try:
            tasks.run(self.node)
        except KilledError:
            pass
        except BaseException as error:
            self.error = error

    def _spawn(self, argv: list[str], environment: dict[str, str], cwd: Path) -> Any:
        with (self._folder / f"log-{self.name}").open("ab") as log:
            process = subprocess.Popen(
                argv,
                env={**environment, **variables(self._python), _MARK: self.name},
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def give_notice(self) -> None:
        """Announce the end, as the watching unit does: the notice first, then SIGTERM to the agent."""
        announced = notice.from_lifecycle("Terminated", self.node.clock.wall(), 1200.0)
        notice.write(self.node.directory, announced)
        self._handlers[-1]()

    def lose(self) -> None:
        """End the agent and all processes of this play's command, which leaves the lease."""
        self.is_lost = True
        mark = f"{_MARK}={self.name}\0".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):  # torchrun gives each rank a session of its own
            with contextlib.suppress(OSError):
                if mark in path.read_bytes() and str(self._folder).encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
        self.thread.join(timeout=60)

    def end(self) -> None:
        """Stop what is left."""
        self.lose()
        for process in self.processes:
            process.kill()
            process.wait()
