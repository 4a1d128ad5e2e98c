"""Atomic file writes, and reads of files that a user may have put in place of the agent's."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_MAX_JSON_BYTES: Final = 64 * 2**20


def write_atomic(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace ``path`` by ``text``: write a temporary file, flush it to disk, rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("x") as file:  # "x": a link that a user put there is not followed
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the rename itself
    finally:
        os.close(directory)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace ``path`` by ``value`` as JSON, atomically."""
    write_atomic(path, json.dumps(value, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in ``path``; None without a file or a JSON object in it."""
    try:
        value = json.loads(read_regular(path, _MAX_JSON_BYTES)[0])
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_regular(path: Path, max_bytes: int) -> tuple[bytes, float]:
    """Return the content of a regular file and when it was written (epoch seconds); follows no link.

    Raises:
        OSError: there is none, or it cannot be read.
        ValueError: it is a directory, pipe or device, or longer than ``max_bytes``.
    """
    # Opening a named pipe would block; a symbolic link could lead to any file.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as content:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        if len(data := content.read(max_bytes + 1)) > max_bytes:
            raise ValueError(f"longer than {max_bytes} bytes")
    return data, status.st_mtime
