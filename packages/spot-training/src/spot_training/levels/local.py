"""The directory of this machine for checkpoints: where it is, and how much fits."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
from pathlib import Path
from typing import Final

from spot_training.errors import SaveError
from spot_training.storage.files import Files

LOCAL_VARIABLE: Final = "GPU_SPOT_LOCAL_CHECKPOINTS"
_AVAILABLE: Final = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_FILES: Final = re.compile(r"^(?:in)?active_file (\d+)$", re.MULTILINE)
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_CGROUP: Final = Path("/sys/fs/cgroup")


def local_folder(root: str | os.PathLike[str], location: str) -> Path:
    """Return the directory below ``root`` for the checkpoints of ``location``: each training has its own."""
    text = location if "://" in location else str(Path(location).resolve())
    return Path(root) / f"{Path(text).name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def make_private(folder: Path) -> None:
    """Create the directory, for this user only; one of another user is not used (``/dev/shm`` is for all).

    Raises:
        SaveError: it is another user's.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner, user = folder.stat().st_uid, os.geteuid()
    if owner != user:
        raise SaveError(f"{folder} belongs to user {owner}, not to {user}; use a folder of this user")


def machine() -> str:
    """Return what is the same in all processes that see the same local directory: boot and host name."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = ""
    return f"{boot} {socket.gethostname()}"


class LocalFiles(Files):
    """Files of a local directory; one in memory (tmpfs) has no more space than memory is available."""

    def free_bytes(self, folder: Path) -> int | None:
        """See ``Files``."""
        free = super().free_bytes(folder)
        if free is None or not _is_in_memory(folder):
            return free
        return min([free, *available_memory()])


def available_memory(
    memory_information: Path = Path("/proc/meminfo"), control_group: Path = _CGROUP
) -> list[int]:
    """Return the bytes that the machine and this control group still have; empty if neither is known.

    What the group holds of files on disks counts as free: the kernel drops it. Source: proc_meminfo(5),
    ``MemAvailable``; kernel, "Control Group v2", memory.
    """
    result = []
    with contextlib.suppress(OSError):
        if match := _AVAILABLE.search(memory_information.read_text()):
            result.append(int(match[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # no such group; "max": no limit
        limit = int((control_group / "memory.max").read_text())
        used = int((control_group / "memory.current").read_text())
        files = _FILES.findall((control_group / "memory.stat").read_text())
        result.append(max(0, limit - used + sum(map(int, files))))
    return result


def _is_in_memory(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether a directory is on a tmpfs, by the longest mount point above it (proc_mounts(5))."""
    path = folder.resolve()
    kinds = {}
    try:
        for line in mounts.read_text().splitlines():
            _, point, kind, *_ = line.split(" ")
            if path.is_relative_to(point):
                kinds[len(point)] = kind
    except (OSError, ValueError):
        return True  # unknown: the smaller figure counts
    return not kinds or kinds[max(kinds)] == "tmpfs"
