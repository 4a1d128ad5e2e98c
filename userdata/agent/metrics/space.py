"""How full the data volume is."""

from __future__ import annotations

import os
from pathlib import Path

from userdata.agent.machine.host import Host


def free_percent(host: Host, place: Path) -> float | None:
    """Return how much of the file system mounted at ``place`` unprivileged users may still fill, in percent.

    None while nothing is mounted there: the figure would be the root volume's.
    """
    if host.mounted(place) is None:
        return None
    try:
        found = os.statvfs(place)
    except OSError:
        return None
    return 100.0 * found.f_bavail / found.f_blocks if found.f_blocks else None
