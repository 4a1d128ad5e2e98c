"""The files of a job's checkpoints: the newest one's age, and whether there are new ones."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LOGS: Final = re.compile(r".*\.(log|out|err|ya?ml|csv|tsv)|events\.out\.tfevents\..*|wandb-.*|.*\.wandb")
"""Files that a run writes whether it trains or not: its output, arguments and events are not checkpoints."""


def newest_checkpoint(directory: Path) -> float:
    """Return the modification time of the newest file below ``directory`` (epoch seconds); 0 without files.

    Names that begin with a dot are incomplete and skipped, as logs are. Links are not followed. Directories
    do not count: deleting from one is not progress.
    """
    return max((status.st_mtime for _, status in _files(directory)), default=0.0)


class CheckpointFiles:
    """Detects new checkpoints in directories by their names and times together, as clocks may jump.

    A file dated ahead, by a clock that was corrected since, is newer than all that follow it for a while.
    """

    def __init__(self, *directories: Path) -> None:
        self._directories = directories
        self._files: frozenset[tuple[str, int]] = frozenset()
        self.newest = 0.0
        """Modification time of the newest file at the last `scan` (epoch seconds); 0 without files."""
        self.changes = 0
        """Number of scans that found a file which the scan before had not."""

    def scan(self) -> int:
        """Read the directories; return ``changes``."""
        statuses = dict(_files(*self._directories))
        files = frozenset((path, status.st_mtime_ns) for path, status in statuses.items())
        self.changes += not files <= self._files
        self._files = files
        self.newest = max((status.st_mtime for status in statuses.values()), default=0.0)
        return self.changes


def _files(*roots: Path) -> Iterator[tuple[str, os.stat_result]]:
    directories = [str(root) for root in roots]
    while directories:
        with contextlib.suppress(OSError), os.scandir(directories.pop()) as entries:
            for entry in entries:
                if entry.name.startswith(".") or _LOGS.fullmatch(entry.name):
                    continue
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
                    else:
                        yield entry.path, entry.stat(follow_symlinks=False)
