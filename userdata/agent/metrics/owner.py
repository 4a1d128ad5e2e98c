"""The worker slot of a process, found by its cgroup, container or parent processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from contracts.agent.names import UNIT_RUN, WORKERS_DIR
from userdata.agent.machine import files

# docker-<id>.scope (systemd driver), /docker/<id> (cgroupfs driver), cri-containerd-<id>.scope
_CONTAINER: Final = re.compile(r"(?:^|[/-])([0-9a-f]{64})(?:\.scope)?$")
UNKNOWN_SLOT: Final = "other"


class Owners:
    """Maps processes to worker slots by ``/proc`` and the slot records of ``work``; a job is one worker."""

    def __init__(self, directory: Path, proc: Path = Path("/proc"), *, has_job: bool = False) -> None:
        self._directory, self._proc, self._has_job = directory / WORKERS_DIR, proc, has_job

    def slot_of(self, pid: int) -> str:
        """Return the slot number as text; `UNKNOWN_SLOT` for a process of no worker."""
        groups = self._cgroups(pid)
        containers = {match[1] for group in groups if (match := _CONTAINER.search(group))}
        # A job's container is Docker's: its processes are in no unit of ours.
        if (self._has_job and containers) or any(UNIT_RUN in group.split("/") for group in groups):
            return "0"
        by_pid: dict[int, str] = {}
        for path in sorted(self._directory.glob("*.json")):
            if container := _text(path.with_suffix(".cid")):
                if container in containers:
                    return path.stem
            elif record := files.read_json(path):
                by_pid[int(record.get("pid", 0))] = path.stem
        visited: set[int] = set()
        while pid > 1 and pid not in visited:
            if pid in by_pid:
                return by_pid[pid]
            visited.add(pid)
            pid = self._parent(pid)
        return UNKNOWN_SLOT

    def _cgroups(self, pid: int) -> list[str]:
        """Return the paths in ``/proc/<pid>/cgroup``: ``0::/path``; in cgroup v1 ``4:memory:/path``."""
        text = _text(self._proc / str(pid) / "cgroup")
        return [line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2]

    def _parent(self, pid: int) -> int:
        """Return the parent from ``/proc/<pid>/stat``; its command may contain spaces and parentheses."""
        fields = _text(self._proc / str(pid) / "stat").rpartition(")")[2].split()
        return int(fields[1]) if len(fields) > 1 else 0


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
