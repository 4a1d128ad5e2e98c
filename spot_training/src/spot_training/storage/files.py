"""Every touch of the file system by a checkpoint: tests can fail or end at any of them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK = 1 << 16


class Files:
    """The file system. Errors are ``OSError``; nothing is tried again here."""

    def touch(self, what: str, path: Path) -> None:
        """Called before each touch; does nothing.

        The tests' own raise ``OSError`` or end the process here.
        """

    def names(self, folder: Path) -> list[str]:
        """Return what lies in a folder, sorted; nothing where it is not there."""
        self.touch("list", folder)
        try:
            return sorted(path.name for path in folder.iterdir())
        except FileNotFoundError:
            return []

    def make(self, folder: Path) -> None:
        """Make a folder and those above it."""
        self.touch("make", folder)
        folder.mkdir(parents=True, exist_ok=True)

    def make_new(self, folder: Path) -> None:
        """Make a folder that must not be there."""
        self.touch("make", folder)
        folder.mkdir()

    def read(self, path: Path) -> bytes:
        """Return a file's content. It is opened anew: by NFS's close-to-open that is the server's content."""
        self.touch("read", path)
        return path.read_bytes()

    def write(self, path: Path, content: bytes) -> None:
        """Write a new file and flush it to the disk; what is half written carries its final name."""
        self.touch("open", path)
        with path.open("wb") as file:
            for begin in range(0, max(len(content), 1), _CHUNK):
                self.touch("write", path)
                file.write(content[begin : begin + _CHUNK])
            file.flush()
            self.touch("sync", path)
            os.fsync(file.fileno())

    def replace(self, path: Path, content: bytes) -> None:
        """Replace a file: readers see the old one or the new one, whole."""
        new = path.with_name(f".{path.name.lstrip('.')}.{os.getpid()}")
        self.write(new, content)
        self.rename(new, path)
        self.sync(path.parent)

    def sync(self, path: Path) -> None:
        """Flush a file or a folder to the disk."""
        self.touch("sync", path)
        with _opened(path) as handle:
            os.fsync(handle)

    def digest(self, path: Path) -> tuple[int, str]:
        """Return size and SHA-256 of a file."""
        self.touch("read", path)
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()

    def rename(self, old: Path, new: Path) -> None:
        """Rename; onto a file: in one step.

        An NFS server may have carried out what it did not answer, and then knows no ``old`` (rename(2),
        BUGS).
        """
        there = old.exists()
        self.touch("rename", new)
        try:
            old.rename(new)
        except FileNotFoundError:
            if not there or old.exists() or not new.exists():
                raise

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it; nothing where it is not there."""
        self.touch("remove", path)
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except FileNotFoundError:
            pass


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)
