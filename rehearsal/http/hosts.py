"""Hosts of HTTP workers as local processes, each at a loopback address of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from contracts.agent.config import HttpWorkers
from rehearsal.machines.real import service_host
from rehearsal.machines.real.commands import kill_all
from rehearsal.services.hosts import Processes
from userdata.agent.proxy.discovery import HttpHost

_NETWORK: Final = "127.0.78"
_ADDRESSES: Final = 250


class HttpHosts:
    """The hosts of a service; the command is that of a worker.

    Ports are the same on all hosts: each has its address, and an address is used again after 250 hosts.
    """

    def __init__(
        self, folder: Path, command: Sequence[str], environment: dict[str, str], workers: HttpWorkers
    ) -> None:
        self._folder = folder
        self._processes = Processes(folder, folder)
        self._command = list(command)
        self._environment = environment
        self._workers = workers
        self._hosts: dict[str, subprocess.Popen[str]] = {}
        self._listed: dict[str, HttpHost] = {}
        self._launched = 0

    def launch(self) -> str:
        """Start a host; return its name."""
        self._launched += 1
        name = f"i-{self._launched:04}"
        address = f"{_NETWORK}.{1 + self._launched % _ADDRESSES}"
        directory = self._folder / name
        directory.mkdir()
        config = service_host.ServiceHostConfig(
            command=self._command,
            environment={**self._environment, "ADDRESS": address},
            secrets={},
            slots=1,
            directory=str(directory),
            address=address,
            http=asdict(self._workers),
        )
        process = self._processes.start("hosts", ["-m", service_host.__name__], {})
        self._hosts[name] = process
        self._send(process, asdict(config))
        self._listed[name] = HttpHost(name, address, time.time())
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
