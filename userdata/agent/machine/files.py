"""Atomic file writes: readers see the old or the new content, never a part."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any


def write_atomic(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace ``path`` by ``text``: write a temporary file, flush it to disk, rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w") as file:
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


def write_below(root: Path, path: PurePath, text: str) -> None:
    """Replace ``path``, which is relative to ``root``, by ``text``, where others may write below ``root``.

    No link below ``root`` is followed: whoever made it does not choose what root's process writes to.

    Raises:
        OSError: a directory is missing or a link, or the file cannot be written.
    """
    with contextlib.ExitStack() as stack:

        def opened(name: str | Path, flags: int, parent: int | None = None) -> int:
            descriptor = os.open(name, flags | os.O_CLOEXEC, 0o644, dir_fd=parent)
            stack.callback(os.close, descriptor)
            return descriptor

        directory = opened(root, os.O_RDONLY | os.O_DIRECTORY)
        for part in path.parent.parts:
            directory = opened(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, directory)
        temporary = f".{path.name}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        file = opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, directory)
        with open(file, "w", encoding="utf-8", closefd=False) as writer:
            writer.write(text)
            writer.flush()
            os.fsync(file)
        os.replace(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace ``path`` by ``value`` as JSON, atomically."""
    write_atomic(path, json.dumps(value, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in ``path``; None without a file or a JSON object in it."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
