"""Fast ephemeral storage: the instance store if the type has one, else the root disk.

If the image has mounted the instance store already, as Deep Learning AMIs do, that mount is used. Only a
blank device whose model is that of an instance store is formatted: a data volume has the model of EBS and a
file system.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from contracts.agent.names import CACHE_DIR, SCRATCH_DIR, WORK_HOME
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import QUICK, SLOW, Host

# Striped. Not documented by AWS; if the path is not mounted, devices in use are left alone.
_MOUNTED_BY_IMAGE: Final = Path("/opt/dlami/nvme")


def prepare_scratch(
    host: Host, user: str, directory: Path = SCRATCH_DIR, mounted_by_image: Path = _MOUNTED_BY_IMAGE
) -> None:
    """Make ``directory`` writable for ``user``, on the fastest ephemeral disk.

    A device that cannot be used is logged and left alone; the work then uses the root disk.
    """
    owner = ["install", "--directory", f"--owner={user}"]
    if host.mounted(directory) is None:
        if host.mounted(mounted_by_image) is not None:
            source = mounted_by_image / "gpu-spot"
            host.run([*owner, str(source)], QUICK)
            host.run([*owner, str(directory)], QUICK)
            host.run(["mount", "--bind", str(source), str(directory)], SLOW)
        else:
            for device in host.instance_stores():
                if _is_mounted(host, device, directory):
                    break
    host.run([*owner, str(directory)], QUICK)


def prepare_containers(host: Host) -> None:
    """Make the scratch space for a service's containers, whose images choose their users."""
    prepare_scratch(host, "root")
    for directory in (WORK_HOME, CACHE_DIR):
        host.run(["install", "--directory", "--mode=1777", str(directory)], QUICK)


def worker_tmp(slot: int) -> Path:
    """Return the directory that a worker's container sees as ``/tmp``."""
    return SCRATCH_DIR / "tmp" / str(slot)


def prepare_worker(host: Host, slot: int) -> None:
    """Make a worker's ``/tmp``, empty."""
    host.run(["rm", "--recursive", "--force", "--one-file-system", str(worker_tmp(slot))], SLOW)
    host.run(["install", "--directory", "--mode=1777", str(worker_tmp(slot))], QUICK)


def _is_mounted(host: Host, device: str, directory: Path) -> bool:
    try:
        kind = host.filesystem(device)
        if kind is None:
            host.make_filesystem(device)
        elif kind != "xfs":
            raise AgentError(f"{device} has file system {kind}; use a blank device or xfs")
        host.mount(device, directory)
    except AgentError as error:
        log.warning("instance store not used", device=device, error=str(error))
        return False
    log.info("instance store mounted", device=device, place=str(directory))
    return True
