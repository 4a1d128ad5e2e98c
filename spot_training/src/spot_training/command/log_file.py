"""A log file of bounded size: ``train.log``, ``train.log.1`` and so on."""

from __future__ import annotations

import os
from pathlib import Path


class LogFile:
    """Appends bytes to ``path``; a full file is renamed to ``path.1``, and so on up to ``files`` files."""

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def write(self, content: bytes) -> None:
        """Append ``content``; raises ``OSError``."""
        if os.fstat(self._file.fileno()).st_size + len(content) > self._max_bytes:
            self._rotate()
        self._file.write(content)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._files - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._file = self._path.open("wb", buffering=0)

    def _numbered(self, number: int) -> Path:
        return self._path if number == 0 else self._path.with_name(f"{self._path.name}.{number}")
