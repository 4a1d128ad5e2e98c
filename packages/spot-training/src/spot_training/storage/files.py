"""All file system operations of checkpoints; tests inject faults into each of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from spot_training.storage.bounded import record_progress
from spot_training.storage.hashing import take_digest
from spot_training.storage.manifest import File

_CHUNK = 1 << 16
_READ_CHUNK = 1 << 20  # it stays in the processor's cache until it is hashed


class Files:
    """The file system. Errors are ``OSError``; operations are not retried here."""

    def touch(self, operation: str, path: Path) -> None:
        """Do nothing, before each operation: tests raise ``OSError`` here, or end the process."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in a directory, sorted; empty if it does not exist."""
        self.touch("list", folder)
        try:
            return sorted(path.name for path in folder.iterdir())
        except FileNotFoundError:
            return []

    def make(self, folder: Path) -> None:
        """Create a directory and its parents."""
        self.touch("make", folder)
        folder.mkdir(parents=True, exist_ok=True)

    def make_new(self, folder: Path) -> None:
        """Create a directory that must not exist."""
        self.touch("make", folder)
        folder.mkdir()

    def read(self, path: Path) -> bytes:
        """Return a file's content; opening it gets the server's content (NFS close-to-open consistency)."""
        self.touch("read", path)
        return path.read_bytes()

    def write(self, path: Path, content: bytes) -> None:
        """Write a new file under its final name and flush it to disk."""
        self.touch("open", path)
        with path.open("wb") as file:
            for begin in range(0, max(len(content), 1), _CHUNK):
                self.touch("write", path)
                file.write(content[begin : begin + _CHUNK])
                record_progress()
            file.flush()
            self.touch("sync", path)
            os.fsync(file.fileno())

    def replace(self, path: Path, content: bytes) -> None:
        """Replace a file atomically: readers see the old or the new content."""
        new = path.with_name(f".{path.name.lstrip('.')}.{os.getpid()}")
        self.write(new, content)
        self.rename(new, path)
        self.sync(path.parent)

    def sync(self, path: Path) -> None:
        """Flush a file or a directory to disk."""
        self.touch("sync", path)
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def digest(self, path: Path) -> tuple[int, str]:
        """Return the size and SHA-256 of a file, by reading it."""
        self.touch("read", path)
        with path.open("rb", buffering=0) as file:
            digest, chunk = hashlib.sha256(), bytearray(_READ_CHUNK)
            while count := file.readinto(chunk):
                digest.update(memoryview(chunk)[:count])
                record_progress()
            return os.fstat(file.fileno()).st_size, digest.hexdigest()

    def problem(self, root: Path, files: Mapping[str, File]) -> str:
        """Return which file below ``root`` is another than expected; empty: none is."""
        for path, expected in files.items():
            size, digest = self.digest(root / path)
            if size != expected.size:
                return f"{path} has {size} of {expected.size} bytes"
            if digest != expected.sha256:
                return f"{path} has a wrong checksum"
        return ""

    def written_digest(self, path: Path) -> tuple[int, str]:
        """Return the size and SHA-256 of a new file; it is read only if it was not hashed when written."""
        digest = take_digest(path, status := path.stat())
        return self.digest(path) if digest is None else (status.st_size, digest)

    def free_bytes(self, folder: Path) -> int | None:
        """Return the bytes that this user may still write in a directory's file system; None if unknown."""
        try:
            status = os.statvfs(folder)
        except OSError:
            return None
        return status.f_bavail * status.f_frsize if status.f_blocks else None

    def rename(self, old: Path, new: Path) -> None:
        """Rename; an existing file is replaced atomically.

        An NFS server may have renamed the file although its response was lost; ``old`` is then missing on the
        retry (rename(2), BUGS).
        """
        existed = old.exists()
        self.touch("rename", new)
        try:
            old.rename(new)
        except FileNotFoundError:
            if not existed or old.exists() or not new.exists():
                raise

    def remove(self, path: Path) -> None:
        """Remove a file, or a directory with its contents; a missing one is not an error."""
        self.touch("remove", path)
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
