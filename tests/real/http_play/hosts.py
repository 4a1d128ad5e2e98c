"""Hosts of HTTP workers as local processes, each at a loopback address of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from contracts.agent.config import HttpWorkers
from contracts.group.release import WorkerRelease
from contracts.registry.item import Worker
from tests.real import service_host
from tests.real.service_host import kill_all
from userdata.agent.proxy.discovery import HttpHost

_ADDRESSES: Final = 250
_ROOT: Final = str(Path(__file__).parents[3])


class PlayClock:
    """Wall and monotonic time that pass ``pace`` times as fast as the machine's, from now on."""

    def __init__(self, pace: float = 1.0) -> None:
        self._pace = pace
        self._began = time.time()
        self._began_monotonic = time.monotonic()

    def of_machine(self, at: float) -> float:
        """Return the play's time at a time of the machine, both in epoch seconds."""
        return self._began + (at - self._began) * self._pace

    def wall(self) -> float:
        return self.of_machine(time.time())

    def monotonic(self) -> float:
        return (time.monotonic() - self._began_monotonic) * self._pace

    def sleep(self, seconds: float) -> None:
        time.sleep(max(seconds, 0.0) / self._pace)


class HttpHosts:
    """The hosts of a service in a ``network`` of loopback (its first three numbers).

    ``variables`` are those of its workers, whatever their release.
    """

    def __init__(
        self,
        folder: Path,
        variables: dict[str, str],
        workers: HttpWorkers,
        clock: PlayClock,
        network: str,
        gpus: int = 1,
    ) -> None:
        self._folder = folder
        self._variables = variables
        self._workers = workers
        self._clock = clock
        self._network = network
        self._gpus = gpus
        self._hosts: dict[str, subprocess.Popen[str]] = {}
        self._listed: dict[str, HttpHost] = {}
        self._launched = 0

    def launch(self, release: WorkerRelease) -> str:
        """Start a host, its workers from ``release``; return its name."""
        self._launched += 1
        name = f"i-{self._launched:04}"
        address = f"{self._network}.{1 + self._launched % _ADDRESSES}"
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
            gpus=self._gpus,
        )
        with (self._folder / "hosts.log").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", service_host.__name__],
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": _ROOT},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,  # Ctrl-C must not reach it; `close` ends it
            )
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
        for name in self.names():
            self.end(name)

    def _send(self, process: subprocess.Popen[str], line: object) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended
            process.stdin.write(f"{json.dumps(line)}\n")
            process.stdin.flush()
