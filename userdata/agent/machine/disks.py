"""Write test of a disk, in a separate process: a process that waits for a hanging disk hangs too."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

WRITE_TIMEOUT_SECONDS: Final = 30.0
"""Timeout for writing 4 KiB: EBS takes milliseconds, and its driver has no timeout."""
MIN_FREE_BYTES: Final = 16 * 2**20
"""A disk with less free space counts as full."""

_REAP_TIMEOUT_SECONDS: Final = 1.0

_WRITE_SCRIPT: Final = """
import os, sys
path = os.path.join(sys.argv[1], f".gpu-spot-try-{os.getpid()}")
try:
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(file, bytes(4096))
        os.fsync(file)
    finally:
        os.unlink(path)
        os.close(file)
except OSError as error:
    sys.exit(error.errno or 1)
"""


def check_writable(
    directory: Path, timeout: float = WRITE_TIMEOUT_SECONDS, script: str = _WRITE_SCRIPT
) -> tuple[str, bool]:
    """Write, flush and delete a small file; return the error (or ""), and whether the disk is full.

    A full disk is not an error here: the work has filled it.
    """
    argv = [sys.executable, "-I", "-S", "-c", script, str(directory)]
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
    except OSError as error:
        return f"{directory}: {error.strerror}", False
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_REAP_TIMEOUT_SECONDS)  # a process in uninterruptible sleep ignores SIGKILL
        return f"{directory}: no response for {timeout:.0f} s", False
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "", True
    if code:
        return f"{directory}: {os.strerror(code) if code > 0 else f'signal {-code}'}", False
    return "", _is_full(directory)


def _is_full(directory: Path) -> bool:
    try:
        status = os.statvfs(directory)
    except OSError:
        return False
    no_names = bool(status.f_files) and not status.f_favail
    return status.f_bavail * status.f_frsize < MIN_FREE_BYTES or no_names
