"""A log of a training that goes on after a restart without a gap or a doubled row."""

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
    """JSON objects, one a line. A checkpoint keeps ``position()``; ``rewind`` drops what came after it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._complained = False

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a row. What is no finite number becomes null. A full disk is said once and ends nothing."""
        clean = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        try:
            self._opened().write(json.dumps(clean).encode() + b"\n")
        except OSError as error:
            if not self._complained:
                _log.warning("%s: rows are lost: %s", self.path, error)
                self._complained = True

    def position(self) -> int:
        """Flush the rows to the disk and return how many bytes they are. ``OSError``: some are not there."""
        file = self._opened()
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size

    def rewind(self, position: int) -> None:
        """Go on behind the first ``position`` bytes; says so where rows are missing."""
        file = self._opened()
        size = os.fstat(file.fileno()).st_size
        if size < position:
            _log.warning("%s has %d bytes of %d: rows of before are lost", self.path, size, position)
            if size and not self.path.read_bytes().endswith(b"\n"):
                file.write(b"\n")
        else:
            file.truncate(position)
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close the file; a row that is written after it opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
        return self._file
