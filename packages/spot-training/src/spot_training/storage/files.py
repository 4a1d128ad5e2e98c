"""All file system operations of checkpoints, into each of which tests inject faults; files' checksums."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from spot_training.storage.calls import record_progress
from spot_training.storage.manifest import File

_CHUNK: Final = 1 << 16
_READ_CHUNK: Final = 1 << 20  # it stays in the processor's cache until it is hashed
_HASHED_CHUNK: Final = 1 << 24  # bytes between two signs of progress
_MAX_REMEMBERED: Final = 10_000
_lock = threading.Lock()
_digests: dict[str, tuple[tuple[int, int, int, int], str]] = {}
"""Of files that were hashed when written, by path: the identity when it was closed, and the SHA-256."""


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

    def make(self, folder: Path, *, is_new: bool = False) -> None:
        """Create a directory and its parents; ``is_new``: it alone, and it must not exist."""
        self.touch("make", folder)
        folder.mkdir(parents=not is_new, exist_ok=not is_new)

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

    def copy_links(self, folder: Path) -> None:
        """Put copies in place of links: what they lead to may move, change, or be on this machine alone."""
        for path in [path for path in folder.rglob("*") if path.is_symlink()]:
            target = path.resolve(strict=True)
            path.unlink()
            (shutil.copytree if target.is_dir() else shutil.copy2)(target, path)

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


class HashedFile(io.RawIOBase):
    """A new file that is hashed while it is written, from its beginning to its end.

    It keeps the ``OSError`` of a failed write: PyTorch reports a full disk as a ``RuntimeError`` about a
    position.
    """

    def __init__(self, file: BinaryIO, check: Callable[[], object]) -> None:
        self.name, self._file, self._check = file.name, file, check
        self.hash = hashlib.sha256()
        """Of what was written."""
        self.write_error: OSError | None = None

    def write(self, content: object) -> int:
        """Write all of ``content``; return its number of bytes."""
        self._check()
        view = memoryview(content).cast("B")  # type: ignore[arg-type]
        try:
            for begin in range(0, len(view), _HASHED_CHUNK):
                part = view[begin : begin + _HASHED_CHUNK]
                self.hash.update(part)
                self._file.write(part)
                record_progress()
        except OSError as error:
            self.write_error = error
            raise
        return len(view)


@contextmanager
def hashed(path: Path, check: Callable[[], object] = lambda: None) -> Iterator[HashedFile]:
    """Open a new file for writing, for `take_digest`; raises the disk's own ``OSError``, not the writer's.

    ``check`` is called before each write, and may raise an error to end it.
    """
    with path.open("wb") as raw:
        file = HashedFile(raw, check)
        try:
            yield file
        except Exception:
            if file.write_error is not None:
                raise file.write_error from None
            raise
        raw.flush()
        status = os.fstat(raw.fileno())
    with _lock:
        if len(_digests) >= _MAX_REMEMBERED:
            _digests.clear()
        _digests[str(path)] = (_identity(status), file.hash.hexdigest())


def take_digest(path: Path, status: os.stat_result) -> str | None:
    """Return the hash of an unchanged file that `hashed` wrote, once; None for any other file."""
    with _lock:
        remembered = _digests.pop(str(path), None)
    return remembered[1] if remembered is not None and remembered[0] == _identity(status) else None


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
