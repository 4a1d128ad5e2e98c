"""Hosts: units are entries of a dict and signals a list; volumes of EC2 are devices."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Any

from userdata.agent.machine.host import Argv, SystemHost, Variables


class UnitHost(SystemHost):
    def __init__(self) -> None:
        super().__init__()
        self.pids: dict[str, int] = {}
        self.signals: list[tuple[int, signal.Signals]] = []

    def main_pid(self, unit: str) -> int | None:
        return self.pids.get(unit)

    def signal(self, pid: int, number: signal.Signals) -> None:
        self.signals.append((pid, number))


class CommandHost(UnitHost):
    """Notes its commands, and answers by program or Docker's subcommand; an error is raised."""

    def __init__(self, **answers: str | Exception) -> None:
        super().__init__()
        self.ran: list[list[str]] = []
        self.answers = answers

    def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
        if self._polling.on_poll is not None:
            self._polling.on_poll()
        self.ran.append(list(argv))
        answer = self.answers.get(argv[1] if argv[0] == "docker" else argv[0], "")
        if isinstance(answer, Exception):
            raise answer
        return answer


class DiskHost(UnitHost):
    """Every volume is a device; file systems stay with the volume, mounts with the host."""

    def __init__(self, ec2: Any) -> None:
        super().__init__()
        self.ec2 = ec2
        self.formatted: set[str] = set()
        self.at: str | None = None

    def device_of(self, volume: str) -> str | None:
        return f"/dev/{volume}"

    def filesystem(self, device: str) -> str | None:
        [volume] = self.ec2.describe_volumes(VolumeIds=[device.removeprefix("/dev/")])["Volumes"]
        return "xfs" if device in self.formatted or volume.get("SnapshotId") else None

    def make_filesystem(self, device: str) -> None:
        self.formatted.add(device)

    def mounted(self, path: Path) -> str | None:
        return self.at

    def mount(self, device: str, path: Path) -> None:
        self.at = device

    def unmount(self, path: Path) -> None:
        self.at = None

    def capacity(self, device: str) -> int:
        [volume] = self.ec2.describe_volumes(VolumeIds=[device.removeprefix("/dev/")])["Volumes"]
        return int(volume["Size"]) * 2**30

    def grow(self, device: str, path: Path) -> None:
        pass

    def frozen(self, path: Path) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class AsMe(SystemHost):
    """Runs as this user what would run as the job's; notes commands, their environments and input."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[list[str], dict[str, str], str]] = []

    def run(self, argv: Argv, timeout: float = 60, stdin: str = "", environment: Variables = None) -> str:
        argv = list(argv)
        self.ran.append((argv, dict(environment or {}), stdin))
        if argv[0] in ("id", "useradd", "chown"):
            return ""
        if argv[0] == "runuser":
            argv = argv[argv.index("--") + 1 :]
        return super().run([a for a in argv if not a.startswith("--owner=")], timeout, stdin, environment)
