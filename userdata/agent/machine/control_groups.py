"""Control groups of the agent's units (v2)."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def kill_others(unit: str, root: Path = Path("/")) -> None:
    """Kill the other processes of ``unit`` if this one belongs to it: ``KillMode=process`` leaves them.

    They are those of an earlier process that was killed, and daemons of workers that have ended.
    """
    with contextlib.suppress(OSError):  # v1, or no control groups
        group = (root / "proc/self/cgroup").read_text().strip().removeprefix("0::/")
        if Path(group).name != unit:
            return
        for pid in (root / "sys/fs/cgroup" / group / "cgroup.procs").read_text().split():
            if int(pid) != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
