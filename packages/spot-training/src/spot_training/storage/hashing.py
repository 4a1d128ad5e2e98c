"""Files that are hashed while they are written, so that a save need not read them again."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from spot_training.storage.bounded import record_progress

_CHUNK: Final = 1 << 24  # bytes between two signs of progress
_MAX_REMEMBERED: Final = 10_000
_lock = threading.Lock()
_digests: dict[str, tuple[tuple[int, int, int, int], str]] = {}
"""By path: the file's identity when it was closed, and its SHA-256."""


class HashedFile(io.RawIOBase):
    """A new file, written from its beginning to its end; it keeps the ``OSError`` of a failed write.

    PyTorch reports a full disk as a ``RuntimeError`` about a position; the error of the disk is here.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.name, self._file = file.name, file
        self.hash = hashlib.sha256()
        """Of what was written."""
        self.write_error: OSError | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: object) -> int:
        """Write all of ``content``; return its number of bytes."""
        view = memoryview(content).cast("B")  # type: ignore[arg-type]
        try:
            for begin in range(0, len(view), _CHUNK):
                part = view[begin : begin + _CHUNK]
                self.hash.update(part)
                self._file.write(part)
                record_progress()
        except OSError as error:
            self.write_error = error
            raise
        return len(view)


@contextmanager
def hashed(path: Path) -> Iterator[HashedFile]:
    """Open a new file for writing, for `take_digest`; raises the disk's own ``OSError``, not the writer's."""
    with path.open("wb") as raw:
        file = HashedFile(raw)
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
