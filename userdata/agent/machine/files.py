"""Atomic file writes: readers see the old or the new content, never a part."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
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
