"""Control groups of the agent's units, by procfs: v1 and v2 (cgroups(7), ``/proc/<pid>/cgroup``)."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def kill_others(unit: str, proc: Path = Path("/proc")) -> None:
    """Kill the other processes of ``unit`` if this one belongs to it: ``KillMode=process`` leaves them.

    They are those of an earlier process that was killed, and daemons of workers that have ended.
    """
    if not _belongs(proc / "self", unit):
        return
    for directory in proc.iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid() and _belongs(directory, unit):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(directory.name), signal.SIGKILL)


def _belongs(directory: Path, unit: str) -> bool:
    try:
        groups = (directory / "cgroup").read_text().splitlines()
    except OSError:  # ended meanwhile
        return False
    return any(group.endswith(f"/{unit}") for group in groups)
