"""Can a disk be written? A process of its own tries: a disk that hangs takes whoever waits for it along."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

PATIENCE: Final = 30.0
"""Seconds for 4 KiB to reach the disk: EBS takes milliseconds, and its driver waits for ever."""
ROOM: Final = 16 * 2**20
"""Bytes with less of which free a disk is full: programs fail one after the other."""

_LAST: Final = 1.0

_TRY: Final = """
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


def try_to_write(directory: Path, patience: float = PATIENCE, script: str = _TRY) -> tuple[str, bool]:
    """Write, flush and delete a small file in ``directory``; return what went wrong, and whether it is full.

    A full disk is no error here: somebody has filled it.
    """
    argv = [sys.executable, "-I", "-S", "-c", script, str(directory)]
    try:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
    except OSError as error:
        return f"{directory}: {error.strerror}", False
    try:
        code = process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LAST)  # who waits for a disk hears nothing, and nobody waits for it
        return f"{directory} does not answer for {patience:.0f} s", False
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "", True
    if code:
        return f"{directory}: {os.strerror(code) if code > 0 else f'signal {-code}'}", False
    return "", _is_full(directory)


def _is_full(directory: Path) -> bool:
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    no_names = bool(found.f_files) and not found.f_favail
    return found.f_bavail * found.f_frsize < ROOM or no_names
