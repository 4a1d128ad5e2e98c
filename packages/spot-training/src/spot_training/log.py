"""A training log that continues after a restart without missing or duplicate rows."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from spot_training.errors import log


class TrainingLog:
    """A file of rows: JSON lines, or CSV if the path ends in ``.csv``.

    A checkpoint stores ``position()``; ``rewind`` drops the rows after it. The columns of a CSV file are the
    keys of its first row and that row's ``optional``; any other key is logged once and left out.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._has_warned = path, False
        self._file: IO[bytes] | None = None
        self._columns: list[str] = []
        self._left_out: set[str] = set()

    def write(self, row: Mapping[str, Any], optional: Sequence[str] = ()) -> None:
        """Append a row; NaN and infinity become null (CSV: empty). A write error is logged once, not raised.

        ``optional``: keys that other rows may have.
        """
        clean = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        try:
            file = self._open()
            text = self._csv(clean, optional) if self.path.suffix == ".csv" else f"{json.dumps(clean)}\n"
            file.write(text.encode())
        except OSError as error:
            if not self._has_warned:
                log.warning("%s: rows lost: %s", self.path, error)
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
        self._columns = []  # the header may be among the dropped rows
        if size < position:
            log.warning("%s has %d of %d bytes: earlier rows are lost", self.path, size, position)
            if size and not self.path.read_bytes().endswith(b"\n"):
                file.write(b"\n")
        else:
            file.truncate(position)
            os.fsync(file.fileno())

    def _csv(self, row: Mapping[str, Any], optional: Sequence[str]) -> str:
        """Return the row's line, after the header if the file is empty."""
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        if os.fstat(self._open().fileno()).st_size == 0:
            self._columns = list(dict.fromkeys([*row, *optional]))
            writer.writerow(self._columns)
        elif not self._columns:
            with self.path.open(newline="", encoding="utf-8") as file:
                self._columns = next(csv.reader(file), [])
        if unknown := sorted(row.keys() - set(self._columns) - self._left_out):
            self._left_out.update(unknown)
            log.warning("%s has no column %s: left out", self.path, ", ".join(unknown))
        writer.writerow([row.get(column) for column in self._columns])
        return lines.getvalue()

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
