"""Memory of a service's workers that the kernel cannot reclaim, and what each may use."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.agent.names import WORKERS_DIR

_MIB: Final = 2**20
_CONTAINER: Final = re.compile(r"[0-9a-f]{64}")
_STATUS: Final = re.compile(r"^(RssAnon|RssShmem):\s+(\d+) kB$", re.M)
_TOTAL: Final = re.compile(r"^MemTotal:\s+(\d+) kB$", re.M)


@dataclass(frozen=True)
class MemoryUse:
    """MiB in use and MiB allowed."""

    used: int
    limit: int


class MemoryReader:
    """Reads the memory of the workers whose records are in ``directory``.

    A container's memory is that of its control group (version 2), a process's that of its session. Pages of
    files do not count: the kernel reclaims them before it kills (Linux, "Control Group v2", ``memory.stat``:
    ``anon`` and ``shmem``; proc_pid_status(5): ``RssAnon`` and ``RssShmem``).

    Args:
        directory: the agent's runtime directory.
        workers: workers on this machine, which share its memory equally where nothing limits them.
        proc, cgroups: roots of the file systems, for tests.
    """

    def __init__(
        self,
        directory: Path,
        workers: int,
        proc: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        self._directory = directory / WORKERS_DIR
        self._workers = workers
        self._proc = proc
        self._cgroups = cgroups

    def read(self, slot: int) -> MemoryUse | None:
        """Return the memory of the worker in ``slot``; None if it is unknown."""
        try:
            share = self._total() // self._workers
            if (container := self._container(slot)) is None:
                pid = int(json.loads((self._directory / f"{slot}.json").read_text())["pid"])
                used, limit = self._of_session(pid), share
            else:
                used, limit = self._of_control_group(container, share)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return MemoryUse(used // _MIB, limit // _MIB) if limit >= _MIB else None

    def _total(self) -> int:
        match = _TOTAL.search((self._proc / "meminfo").read_text())
        if match is None:
            raise ValueError("MemTotal is missing")
        return int(match[1]) * 1024

    def _container(self, slot: int) -> str | None:
        try:
            name = (self._directory / f"{slot}.cid").read_text().strip()
        except FileNotFoundError:
            return None
        if not _CONTAINER.fullmatch(name):
            raise ValueError(f"container {name[:80]!r}")
        return name

    def _of_control_group(self, container: str, share: int) -> tuple[int, int]:
        """Source: Docker manual, "Runtime metrics", both drivers of control groups."""
        paths = (
            self._cgroups / "system.slice" / f"docker-{container}.scope",
            self._cgroups / "docker" / container,
        )
        path = next((path for path in paths if path.is_dir()), paths[0])
        values = dict(line.split() for line in (path / "memory.stat").read_text().splitlines())
        limit = (path / "memory.max").read_text().strip()
        used = int(values["anon"]) + int(values["shmem"])
        return used, share if limit == "max" else min(share, int(limit))

    def _of_session(self, session: int) -> int:
        """Return the bytes of a session's processes; memory that they share counts once."""
        anonymous, shared, count = 0, 0, 0
        for path in self._proc.iterdir():
            if not path.name.isdigit():
                continue
            try:
                # After the name in parentheses: state, parent, group, session (proc_pid_stat(5)).
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) != session:
                    continue
                sizes = {
                    name: int(kib) * 1024 for name, kib in _STATUS.findall((path / "status").read_text())
                }
            except OSError:
                continue  # it has ended
            anonymous += sizes.get("RssAnon", 0)
            shared = max(shared, sizes.get("RssShmem", 0))
            count += 1
        if not count:
            raise ValueError(f"session {session} has no process")
        return anonymous + shared
