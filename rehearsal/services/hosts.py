"""The instances of one service as local processes: the agent's supervisor with real workers as children.

See ``machines/real/service_host.py``. Simulated time passes at most ``PACE`` times as fast as real time.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from contracts.agent.config import Service
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.real import load_client, run_recorder, service_host
from rehearsal.machines.real.commands import kill_all
from rehearsal.services.world import PACE
from userdata.agent.work.service import queue

_COMMAND: Final = "spot-work"
_REQUESTS: Final = "--requests"
_WORKER: Final = "OCR_WORKER"
"""Environment variable with the worker's name in a reply; here the kind of its machine."""
ENDS_IN: Final = 60.0
"""Real seconds that a worker gets to end after the rehearsal, even on a slow machine."""


class RecordedCommand(NamedTuple):
    """A worker's command with the run recorder as its function.

    ``function`` is the original function's name; ``takes_requests``: it gets `Request` objects.
    """

    command: list[str]
    function: str
    takes_requests: bool


def record_runs(command: tuple[str, ...]) -> RecordedCommand:
    """Return a worker's command with the run recorder as its function.

    Raises ``LocalCloudError`` for a command that is not ``spot-work MODULE:FUNCTION …``.
    """
    if len(command) < 2 or command[0] != _COMMAND or ":" not in command[1]:
        raise LocalCloudError(
            f"command is {' '.join(command) or 'empty'}, allowed with --service: {_COMMAND} MODULE:FUNCTION …"
        )
    options = [option for option in command[2:] if option != _REQUESTS]
    recorder = f"{run_recorder.__name__}:{run_recorder.run.__name__}"
    return RecordedCommand(
        [_COMMAND, recorder, *options, _REQUESTS], command[1], takes_requests=_REQUESTS in command
    )


class Processes:
    """Starts processes in the folder of a service's code; each writes to ``<name>.log`` in ``folder``."""

    def __init__(self, code: Path, folder: Path) -> None:
        self._code = code
        self._folder = folder
        package_root = str(Path(load_client.__file__).parents[3])
        paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": os.pathsep.join(paths),
            # One thread for each process: all share few cores.
            "OPENBLAS_NUM_THREADS": "1",
        }

    def start(
        self, name: str, arguments: Sequence[str], variables: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Start Python with ``arguments``."""
        with self._log(name).open("ab") as output:
            return subprocess.Popen(  # noqa: S603
                [sys.executable, *arguments],
                cwd=self._code,
                env={**self._environment, **variables},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,  # Ctrl-C must not reach it; `close` ends it
            )

    def last_output(self, name: str) -> str:
        """Return the last line that processes of that name wrote."""
        lines = self._log(name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


@dataclass(slots=True)
class _Host:
    """The process of an instance; ``at`` is its start in simulated epoch seconds."""

    at: float
    slots: int
    origin: str
    directory: Path
    process: subprocess.Popen[str] | None = None
    is_noticed: bool = False


class RealService:
    """The processes of a service's instances. ``variables`` replace those of the stack file.

    ``drained``, ``overdue`` and ``killed`` count workers: ended in time after a notice, killed at the
    deadline of a notice, killed without one.
    """

    def __init__(
        self, service: Service, processes: Processes, folder: Path, url: str, variables: Mapping[str, str]
    ) -> None:
        assert service.queue is not None
        recorded = record_runs(service.command)
        self.name = service.queue.name
        self.command = service.command
        self.drained = self.overdue = self.killed = 0
        self._folder = folder
        self._processes = processes
        self._record = folder / f"runs-{self.name}"
        self._host_config = service_host.ServiceHostConfig(
            command=recorded.command,
            environment={
                **service.environment,
                **variables,
                run_recorder.FUNCTION: recorded.function,
                run_recorder.TAKES_REQUESTS: str(int(recorded.takes_requests)),
                run_recorder.RECORD: str(self._record),
            },
            secrets=queue.environment(service.queue, url),
            slots=0,
            directory="",
        )
        self._hosts: dict[str, _Host] = {}
        self._leaving: list[_Host] = []
        self._booted = 0

    @property
    def ready_workers(self) -> int:
        """Workers that are ready."""
        return sum(self._hosts[instance_id].slots for instance_id in self.working())

    def runs(self) -> run_recorder.Runs:
        """Return the counts of the run recorder."""
        return run_recorder.read(self._record)

    def has(self, instance: str) -> bool:
        """Return whether an instance was launched and has not been ended or released."""
        return instance in self._hosts

    def advance(self, now: float) -> None:
        """Start instances that are due at ``now`` (simulated epoch seconds)."""
        for instance, host in self._hosts.items():
            if host.process is None and host.at <= now:
                self._boot(instance, host)
        self._leaving = [host for host in self._leaving if not self._has_left(host)]

    def launch(self, instance: str, slots: int, at: float, origin: str) -> None:
        """Add an instance that starts ``at``; its workers are counted under ``origin``."""
        self._booted += 1  # an id can return from the warm pool
        directory = self._folder / f"{self.name}-{instance}-{self._booted}"
        self._hosts[instance] = _Host(at, slots, origin, directory)

    def working(self) -> set[str]:
        """Return the instances whose workers are all ready and not draining."""
        return {
            instance
            for instance, host in self._hosts.items()
            if host.process is not None
            and host.process.poll() is None
            and service_host.are_ready(host.directory, service_host.worker_slots(host.slots))
        }

    def notice(self, instance: str, kind: str, seconds: float, drain: float) -> None:
        """Send a notice to an instance that ends in so many simulated seconds; its agent drains it."""
        host = self._hosts[instance]
        if host.process is None:
            host.at = math.inf  # interrupted before its boot: it never starts
        if host.process is None or host.is_noticed:
            return
        host.is_noticed = True
        self._send_line(host, {"kind": kind, "seconds": seconds / PACE, "drain": drain / PACE})

    def release(self, instance: str, seconds: float) -> None:
        """Remove an instance from the group: its agent drains it within so many simulated seconds."""
        if instance not in self._hosts:
            return  # already interrupted
        self.notice(instance, "lifecycle", seconds, seconds)
        self._leaving.append(self._hosts.pop(instance))

    def end(self, instance: str) -> None:
        """Kill an instance with all its processes."""
        host = self._hosts.pop(instance, None)
        if host is None or host.process is None:
            return
        if host.process.poll() is None:
            kill_all(host.process.pid)
            self.overdue += host.slots * host.is_noticed
            self.killed += host.slots * (not host.is_noticed)
        else:
            self.drained += host.slots
        self._close(host)

    def finish(self) -> tuple[int, int, int]:
        """Drain all workers; return those drained, overdue and killed before."""
        self._wait_for_leaving()
        counts = self.drained, self.overdue, self.killed
        for instance in list(self._hosts):
            self.release(instance, ENDS_IN * PACE)
        self._wait_for_leaving()
        return counts

    def _wait_for_leaving(self) -> None:
        end = time.perf_counter() + ENDS_IN
        while self._leaving and time.perf_counter() < end:
            self._leaving = [host for host in self._leaving if not self._has_left(host)]
            time.sleep(0.02)

    def close(self) -> None:
        """Kill all processes that still run."""
        for host in [*self._hosts.values(), *self._leaving]:
            if host.process is not None and host.process.poll() is None:
                kill_all(host.process.pid)
            self._close(host)

    def _boot(self, instance: str, host: _Host) -> None:
        host.directory.mkdir()
        host.process = self._processes.start("workers", ["-m", service_host.__name__], {})
        origin = {run_recorder.ORIGIN: host.origin, _WORKER: host.origin}
        environment = self._host_config.environment | origin
        config = asdict(self._host_config) | {"environment": environment}
        self._send_line(host, config | {"slots": host.slots, "directory": str(host.directory)})

    def _send_line(self, host: _Host, line: object) -> None:
        assert host.process is not None
        assert host.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended
            host.process.stdin.write(f"{json.dumps(line)}\n")
            host.process.stdin.flush()

    def _has_left(self, host: _Host) -> bool:
        if host.process is not None:
            if host.process.poll() is None:
                return False
            self.drained += host.slots
        self._close(host)
        return True

    def _close(self, host: _Host) -> None:
        if host.process is not None:
            host.process.wait()
            with contextlib.suppress(BrokenPipeError):
                if host.process.stdin is not None:
                    host.process.stdin.close()
        shutil.rmtree(host.directory, ignore_errors=True)
