"""A training log that continues after a restart without missing or duplicate rows."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

_log = logging.getLogger("spot_training")


class TrainingLog:
    """A file of JSON lines. A checkpoint stores ``position()``; ``rewind`` drops the rows after it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._has_warned = False

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row; NaN and infinity become null. A write error is logged once and not raised."""
        clean = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        try:
            self._open().write(json.dumps(clean).encode() + b"\n")
        except OSError as error:
            if not self._has_warned:
                _log.warning("%s: rows lost: %s", self.path, error)
                self._has_warned = True

    def position(self) -> int:
        """Flush the rows to disk and return the size in bytes; raises ``OSError`` if that fails."""
        file = self._open()
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size

    def rewind(self, position: int) -> None:
        """Truncate the file to ``position`` bytes; log a warning if rows are missing."""
        file = self._open()
        size = os.fstat(file.fileno()).st_size
        if size < position:
            _log.warning("%s has %d of %d bytes: earlier rows are lost", self.path, size, position)
            if size and not self.path.read_bytes().endswith(b"\n"):
                file.write(b"\n")
        else:
            file.truncate(position)
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close the file; the next `write` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[bytes]:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
        return self._file
