"""What many instances have at once: EFS, and a snapshot of which each launch makes a volume.

A file system is a folder, a mount of it a link. What is written and read there is counted: EFS is paid by it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rehearsal.machines.times import Times

_SAMPLE: Final = "x,y,label\n0.5,0.5,1\n"


class Shared:
    """File systems and datasets of a rehearsal, below ``folder``; what was written and read is EFS's."""

    def __init__(self, folder: Path, times: Times) -> None:
        self._folder = folder
        self._times = times
        self.written_mib = 0.0
        self.read_mib = 0.0

    def file_system(self, access_point: str) -> Path:
        """Return what lies behind an access point."""
        folder = self._folder / "efs" / access_point
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def dataset(self, volume: str) -> Path:
        """Return what is on a volume that a launch made of a snapshot."""
        folder = self._folder / "datasets" / volume
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sample.csv").write_text(_SAMPLE)
        return folder

    def wrote(self, mib: float) -> None:
        """So much was written to EFS."""
        self.written_mib += mib

    def read(self, mib: float) -> float:
        """Return how many seconds it takes to read so much from EFS."""
        self.read_mib += mib
        return mib / self._times.efs_mib

    def first_read(self, mib: float) -> float:
        """Return how many seconds the first read of so much of a dataset's fresh volume takes."""
        return self._times.first_read(mib, 0.0)
