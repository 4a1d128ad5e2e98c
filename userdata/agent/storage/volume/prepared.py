"""What is on a volume of a prepared dataset: while it is made, and where it is used.

Two marks: `BEGUN` on the volume names the dataset that is being made on it, and the marker in the datasets'
folder, as of one that S3 gave, the one that is complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from userdata.agent.machine import files
from userdata.agent.machine.errors import RefusedError
from userdata.agent.storage.volume.execute import Filler
from userdata.agent.storage.volume.fill import MARKER

BEGUN: Final = ".gpu-spot-preparing.json"


def is_complete(dataset: str, folder: Path) -> bool:
    """Tell whether ``folder`` holds all of ``dataset`` (``<name>@<version>``)."""
    return _told(folder / MARKER) == dataset


def complete(dataset: str, folder: Path) -> None:
    """Vouch for what is in ``folder``, once all of it is on the disk."""
    os.sync()
    files.write_json(folder / MARKER, {"dataset": dataset})


class BuilderFiller:
    """Makes a volume ready for the command that makes ``dataset``: what ``first`` copies, and nothing else's.

    What another version has left on the volume is removed.
    """

    def __init__(self, dataset: str, mount_point: Path, first: Filler) -> None:
        self._dataset = dataset
        self._begun = mount_point / BEGUN
        self._folder = mount_point / "datasets"
        self._first = first

    def filled(self) -> bool:
        """Tell whether the command may begin, or has ended."""
        if _told(self._begun) != self._dataset:
            return False
        return is_complete(self._dataset, self._folder) or self._first.filled()

    def fill(self, keep_alive: Callable[[], None]) -> None:
        """Clear away what is another's, then copy what is missing."""
        if _told(self._begun) != self._dataset:
            keep_alive()
            shutil.rmtree(self._folder, ignore_errors=True)
            files.write_json(self._begun, {"dataset": self._dataset})
        if not self._first.filled():
            self._first.fill(keep_alive)


class PreparedFiller:
    """Looks whether a job's volume holds ``dataset``: it was made from its snapshot, or holds another."""

    def __init__(self, dataset: str, folder: Path) -> None:
        self._dataset = dataset
        self._folder = folder

    def filled(self) -> bool:
        """Tell whether it does."""
        return is_complete(self._dataset, self._folder)

    def fill(self, keep_alive: Callable[[], None]) -> None:
        """Refuse: a volume keeps the dataset that it was made with, because the checkpoints are beside it.

        Raises:
            RefusedError: always.
        """
        raise RefusedError(
            f"the job's volume holds {_told(self._folder / MARKER) or 'no dataset'}, asked for is "
            f"{self._dataset}: give the job another name, or delete its volume and its item in the job table"
        )


def _told(marker: Path) -> str | None:
    found = files.read_json(marker)
    return None if found is None else str(found.get("dataset"))
