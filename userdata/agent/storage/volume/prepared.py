"""The content of a volume with a prepared dataset, in the job that prepares it and in the jobs that use it.

Two marker files: `PREPARING_MARKER` on the volume names the dataset in preparation; the marker in the
datasets directory, the same as of a dataset from S3, names the complete one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from userdata.agent.machine import files
from userdata.agent.machine.errors import RefusedError, TransientError
from userdata.agent.storage.volume.execute import DatasetFiller
from userdata.agent.storage.volume.fill import MARKER

PREPARING_MARKER: Final = ".gpu-spot-preparing.json"


def is_complete(dataset: str, folder: Path) -> bool:
    """Return whether ``folder`` holds all of ``dataset`` (``<name>@<version>``)."""
    return _read_dataset(folder / MARKER) == dataset


def mark_complete(dataset: str, folder: Path) -> None:
    """Flush to disk, then mark the dataset in ``folder`` complete."""
    os.sync()
    files.write_json(folder / MARKER, {"dataset": dataset})


class BuilderFiller:
    """Fills the volume for the command that prepares ``dataset`` with the files that ``first`` copies.

    Files of another dataset version are removed, with what its command says there of its progress and end.
    """

    def __init__(self, dataset: str, mount_point: Path, first: DatasetFiller) -> None:
        self._dataset = dataset
        self._preparing_marker = mount_point / PREPARING_MARKER
        self._folder = mount_point / "datasets"
        self._first = first

    def is_complete(self) -> bool:
        """Return whether the command can start or has finished."""
        if _read_dataset(self._preparing_marker) != self._dataset:
            return False
        return is_complete(self._dataset, self._folder) or self._first.is_complete()

    def fill(self, keep_alive: Callable[[], None]) -> None:
        """Remove all files of another dataset, then copy the missing files."""
        if _read_dataset(self._preparing_marker) != self._dataset:
            keep_alive()
            for folder in (self._folder, *map(self._folder.with_name, ("checkpoints", "artifacts"))):
                shutil.rmtree(folder, ignore_errors=True)
            files.write_json(self._preparing_marker, {"dataset": self._dataset})
        if not self._first.is_complete():
            self._first.fill(keep_alive)


class PreparedFiller:
    """Checks that a job's volume, created from a snapshot, holds ``dataset``."""

    def __init__(self, dataset: str, folder: Path) -> None:
        self._dataset = dataset
        self._folder = folder

    def is_complete(self) -> bool:
        """Return whether the volume holds the dataset."""
        return is_complete(self._dataset, self._folder)

    def fill(self, keep_alive: Callable[[], None]) -> None:
        """Raise: the dataset of a volume cannot change, because the volume also holds checkpoints.

        Raises:
            RefusedError: always.
        """
        raise RefusedError(
            f"the job's volume holds {_read_dataset(self._folder / MARKER) or 'no dataset'}, not "
            f"{self._dataset}; rename the job, or delete its volume, snapshots and item in the job table"
        )


def _read_dataset(marker: Path) -> str | None:
    """Return the dataset that a marker names; an error in reading it is no other dataset."""
    try:
        marker.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TransientError(f"{marker}: {error.strerror}") from None
    document = files.read_json(marker)
    return None if document is None else str(document.get("dataset"))
