"""Mount and unmount EFS access points with efs-utils, over TLS and with IAM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contracts.agent.config import EfsMount
from userdata.agent.machine import log
from userdata.agent.machine.host import QUICK, SLOW, Host


def mount_command(mount: EfsMount) -> list[str]:
    """Return the mount command; ``iam`` makes the helper sign as the instance role."""
    options = f"tls,iam,accesspoint={mount.access_point},noresvport,_netdev"
    return ["mount", "-t", "efs", "-o", options, f"{mount.file_system}:/", mount.path]


def mount_all(host: Host, mounts: Sequence[EfsMount]) -> None:
    """Mount the file systems that are not mounted yet, parents before children.

    Raises:
        AgentError: a mount failed; the remaining ones are not tried.
    """
    for mount in sorted(mounts, key=lambda m: m.path):
        if host.mounted(Path(mount.path)):
            log.info("already mounted", path=mount.path)
            continue
        host.run(["mkdir", "--parents", mount.path], QUICK)
        host.run(mount_command(mount), SLOW)
        log.info("mounted", path=mount.path, file_system=mount.file_system, access_point=mount.access_point)


def unmount_all(host: Host, mounts: Sequence[EfsMount]) -> None:
    """Flush and unmount, children before parents; raises `AgentError` if one is in use."""
    for mount in sorted(mounts, key=lambda m: m.path, reverse=True):
        if host.mounted(Path(mount.path)):
            host.unmount(Path(mount.path))
