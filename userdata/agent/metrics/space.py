"""Free space of the data volume."""

from __future__ import annotations

import os
from pathlib import Path

from userdata.agent.machine.host import Host


def free_percent(host: Host, mount_point: Path) -> float | None:
    """Return the space available to unprivileged users at ``mount_point``, in percent.

    None if nothing is mounted there: the value would be the root volume's.
    """
    if host.mounted(mount_point) is None:
        return None
    try:
        status = os.statvfs(mount_point)
    except OSError:
        return None
    return 100.0 * status.f_bavail / status.f_blocks if status.f_blocks else None
