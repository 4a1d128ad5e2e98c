"""Storage that instances share: EFS, and dataset volumes created from a snapshot at launch.

A file system is a folder, a mount a symbolic link. EFS reads and writes are counted for its cost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rehearsal.machines.times import Times

_SAMPLE: Final = "x,y,label\n0.5,0.5,1\n"


class Shared:
    """File systems and datasets of a rehearsal, below ``folder``; the counters are those of EFS."""

    def __init__(self, folder: Path, times: Times) -> None:
        self._folder = folder
        self._times = times
        self.written_mib = 0.0
        self.read_mib = 0.0

    def file_system(self, access_point: str) -> Path:
        """Return the folder of an access point."""
        folder = self._folder / "efs" / access_point
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def dataset(self, volume: str) -> Path:
        """Return the folder of a dataset volume."""
        folder = self._folder / "datasets" / volume
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sample.csv").write_text(_SAMPLE)
        return folder

    def wrote(self, mib: float) -> None:
        """Record MiB written to EFS."""
        self.written_mib += mib

    def read(self, mib: float) -> float:
        """Record a read from EFS; return its seconds."""
        self.read_mib += mib
        return mib / self._times.efs_mib

    def first_read(self, mib: float) -> float:
        """Return the seconds of a first read from a fresh dataset volume."""
        return self._times.first_read(mib, 0.0)
