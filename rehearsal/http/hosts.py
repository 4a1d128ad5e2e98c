"""Hosts of HTTP workers as local processes, each at a loopback address of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from contracts.agent.config import HttpWorkers
from contracts.group.release import WorkerRelease
from contracts.registry.item import Worker
from rehearsal.http.play_clock import PlayClock
from rehearsal.machines.real import service_host
from rehearsal.machines.real.commands import kill_all
from rehearsal.services.hosts import Processes
from userdata.agent.proxy.discovery import HttpHost

_NETWORK: Final = "127.0.78"
_ADDRESSES: Final = 250


class HttpHosts:
    """The hosts of a service; ``variables`` are those of its workers, whatever their release.

    Ports are the same on all hosts: each has its address, and an address is used again after 250 hosts.
    """

    def __init__(
        self, folder: Path, variables: dict[str, str], workers: HttpWorkers, clock: PlayClock
    ) -> None:
        self._folder = folder
        self._processes = Processes(folder, folder)
        self._variables = variables
        self._workers = workers
        self._clock = clock
        self._hosts: dict[str, subprocess.Popen[str]] = {}
        self._listed: dict[str, HttpHost] = {}
        self._launched = 0

    def launch(self, release: WorkerRelease) -> str:
        """Start a host, its workers from ``release``; return its name."""
        self._launched += 1
        name = f"i-{self._launched:04}"
        address = f"{_NETWORK}.{1 + self._launched % _ADDRESSES}"
        directory = self._folder / name
        directory.mkdir()
        config = service_host.ServiceHostConfig(
            command=list(release.command),
            environment=dict(release.environment),
            secrets={**self._variables, "ADDRESS": address},
            slots=1,
            directory=str(directory),
            address=address,
            http=asdict(self._workers),
        )
        process = self._processes.start("hosts", ["-m", service_host.__name__], {})
        self._hosts[name] = process
        self._send(process, asdict(config))
        self._listed[name] = HttpHost(name, address, self._clock.wall())
        return name

    def listed(self) -> tuple[HttpHost, ...]:
        """Return the hosts as EC2 lists them: from their launch to their end."""
        return tuple(self._listed.values())

    def names(self) -> list[str]:
        """Return the names of the hosts that have not ended."""
        return list(self._hosts)

    def notice(self, name: str, seconds: float) -> None:
        """Send a notice: the host ends in so many seconds, and drains at once."""
        self._send(self._hosts[name], {"kind": "spot", "seconds": seconds, "drain": seconds})

    def assign(self, name: str, release: WorkerRelease) -> None:
        """Set the release that a host's workers start from, next time."""
        line = {"kind": "release", "command": release.command, "environment": dict(release.environment)}
        self._send(self._hosts[name], line)

    def restart(self, name: str) -> None:
        """Request the restart of a host's workers."""
        self._send(self._hosts[name], {"kind": "restart"})

    def workers(self, name: str) -> tuple[Worker, ...]:
        """Return the registered workers of a host, in the play's time."""
        return tuple(
            replace(
                worker,
                since=self._clock.of_machine(worker.since),
                heartbeat=self._clock.of_machine(worker.heartbeat),
            )
            for worker in service_host.read_workers(self._folder / name)
        )

    def has_drained(self, name: str) -> bool:
        """Return whether a host's workers and agent have ended by themselves."""
        return self._hosts[name].poll() is not None

    def end(self, name: str) -> None:
        """Kill a host with all its processes."""
        process = self._hosts.pop(name)
        if process.poll() is None:
            process.send_signal(signal.SIGSTOP)  # else it may start a worker meanwhile
            kill_all(process.pid)
        process.wait()
        self._listed.pop(name, None)
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def close(self) -> None:
        """Kill all hosts."""
        for name in self.names():
            self.end(name)

    def _send(self, process: subprocess.Popen[str], line: object) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended
            process.stdin.write(f"{json.dumps(line)}\n")
            process.stdin.flush()
