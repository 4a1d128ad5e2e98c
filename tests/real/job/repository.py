"""A git repository of a folder with one commit, whose id depends only on the files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

_AUTHOR: Final = "gpu-spot <gpu-spot@example.org> 1767571200 +0000"
_FILE, _FOLDER = "100644", "40000"
_LEFT_OUT: Final = ("__pycache__",)


def made_of(folder: Path, at: Path) -> str:
    """Write a bare repository of the files below ``folder`` into ``at``; return the commit's id."""
    objects: dict[str, bytes] = {}
    commit = _commit(_tree(folder, objects), objects)
    for name, body in objects.items():
        path = at / "objects" / name[:2] / name[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    (at / "refs/heads").mkdir(parents=True)
    (at / "refs/heads/main").write_text(f"{commit}\n")
    (at / "HEAD").write_text("ref: refs/heads/main\n")
    # A server only serves branch tips unless it allows requests by commit id.
    (at / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = true\n[uploadpack]\n\tallowAnySHA1InWant = true\n"
    )
    return commit


def commit_of(folder: Path) -> str:
    """Return the id of the commit that ``made_of`` writes."""
    objects: dict[str, bytes] = {}
    return _commit(_tree(folder, objects), objects)


def _commit(tree: str, objects: dict[str, bytes]) -> str:
    text = f"tree {tree}\nauthor {_AUTHOR}\ncommitter {_AUTHOR}\n\nAs shipped\n"
    return _add(objects, "commit", text.encode())


def _tree(folder: Path, objects: dict[str, bytes]) -> str:
    """Add a folder recursively; entries are sorted by name, folders as if they ended with /."""
    entries: dict[str, tuple[str, str, str]] = {}
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in _LEFT_OUT:
            continue
        if path.is_dir():
            entries[f"{path.name}/"] = (_FOLDER, path.name, _tree(path, objects))
        else:
            entries[path.name] = (_FILE, path.name, _add(objects, "blob", path.read_bytes()))
    if not entries:
        raise FileNotFoundError(f"{folder}: has no files, a repository needs at least one")
    return _add(objects, "tree", _packed(entries))


def _packed(entries: Mapping[str, tuple[str, str, str]]) -> bytes:
    return b"".join(
        f"{mode} {name}\0".encode() + bytes.fromhex(inside)
        for _, (mode, name, inside) in sorted(entries.items(), key=lambda entry: entry[0].encode())
    )


def _add(objects: dict[str, bytes], kind: str, body: bytes) -> str:
    whole = f"{kind} {len(body)}\0".encode() + body
    name = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    objects[name] = zlib.compress(whole)
    return name


_GRAIN: Final = 0.02
"""Tolerance of file times in seconds."""


class CheckpointDates:
    """Sets the modification times of a process's checkpoints to simulated time after its end."""

    def __init__(self, folder: Path, clock: Callable[[], float], file_clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._file_clock = file_clock
        self._started = file_clock(), clock()
        self._signalled: tuple[float, float] | None = None

    def note_signal(self) -> None:
        """Record a signal; only the first counts."""
        self._signalled = self._signalled or (self._file_clock(), self._clock())

    def settle(self) -> None:
        """Set the times of the files that it wrote; those of earlier processes are already set."""
        (began, since), (ended, end) = self._started, self._signalled or (self._file_clock(), self._clock())
        for path in self._folder.rglob("*"):
            with contextlib.suppress(OSError):
                written = path.stat().st_mtime
                if written < began - _GRAIN or not path.is_file():
                    continue
                share = min(1.0, max(0.0, written - began) / max(ended - began, _GRAIN))
                at = self._clock() if written >= ended - _GRAIN else since + share * (end - since)
                os.utime(path, (at, at))


def stamp(path: Path) -> Callable[[], float]:
    """Return a clock with the time that the file system gives to files, even if Python's clock is patched."""

    def file_time() -> float:
        path.touch()
        return path.stat().st_mtime

    return file_time
