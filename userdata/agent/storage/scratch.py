"""Room that is fast and does not last: the instance store, where the type has one, else the root disk.

An image may have mounted it already, as the Deep Learning AMIs are known to; then its place is used. Only a
device whose model says that it is an instance store is ever formatted, and only a blank one: a data volume is
an EBS volume, whose model says so, and it has a file system.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from contracts.agent.names import SCRATCH_DIR
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host

# Striped; not confirmed by a page of AWS's: where it is not so, what is held is left alone.
_MOUNTED_BY_IMAGE: Final = Path("/opt/dlami/nvme")


def prepare(
    host: Host, user: str, place: Path = SCRATCH_DIR, mounted_by_image: Path = _MOUNTED_BY_IMAGE
) -> None:
    """Make ``place`` a folder that ``user`` may write into, on the fastest disk that does not last.

    What cannot be used is said and left alone: the work then has the root disk.
    """
    owner = ["install", "--directory", f"--owner={user}"]
    if host.mounted(place) is None:
        if host.mounted(mounted_by_image) is not None:
            found = mounted_by_image / "gpu-spot"
            host.run([*owner, str(found)])
            host.run([*owner, str(place)])
            host.run(["mount", "--bind", str(found), str(place)])
        else:
            for device in host.instance_stores():
                if _is_mounted(host, device, place):
                    break
    host.run([*owner, str(place)])


def _is_mounted(host: Host, device: str, place: Path) -> bool:
    try:
        kind = host.filesystem(device)
        if kind is None:
            host.make_filesystem(device)
        elif kind != "xfs":
            raise AgentError(f"{device}: {kind}; allowed: a blank one, or xfs of ours")
        host.mount(device, place)
    except AgentError as error:
        log.warning("instance store not used", device=device, error=str(error))
        return False
    log.info("instance store mounted", device=device, place=str(place))
    return True
