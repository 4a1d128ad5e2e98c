"""What a Ray Tune study needs on an instance that may be lost: copy it beside your script."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.fs
from fsspec.implementations.local import LocalFileSystem
from ray import tune

from spot_training import Progress

CHECKPOINTS = Path(os.environ.get("GPU_SPOT_CHECKPOINTS", "checkpoints")).resolve()
STORAGE = CHECKPOINTS / ".ray"
"""Hidden from the node agent: Ray writes its state again at each start, which is not progress."""


class WholeFile(io.FileIO):
    """A file that appears under its name, flushed to the disk, when it is closed."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._hidden = self._path.with_name(f".new-{self._path.name}")
        super().__init__(self._hidden, "w")

    def close(self) -> None:
        """Flush and rename; a second call does nothing."""
        if not self.closed:
            os.fsync(self.fileno())
            super().close()
            self._hidden.replace(self._path)


class WholeFiles(pyarrow.fs.FSSpecHandler):  # type: ignore[misc]
    """Writes `WholeFile`; Ray overwrites its state in place, and cannot resume from half of it."""

    def open_output_stream(self, path: str, metadata: object) -> pyarrow.PythonFile:
        """Open a file for writing."""
        return pyarrow.PythonFile(WholeFile(path), mode="w")


def whole_files() -> pyarrow.fs.PyFileSystem:
    """Return a ``storage_filesystem`` for a directory on a volume or EFS: each file is whole or absent."""
    return pyarrow.fs.PyFileSystem(WholeFiles(LocalFileSystem()))


class Report(tune.Callback):  # type: ignore[misc]
    """Reports checkpoints and trials that have ended to the node agent."""

    def on_checkpoint(self, **_: Any) -> None:
        """Touch a file that counts as the job's newest checkpoint."""
        (CHECKPOINTS / "progress").touch()

    def on_trial_complete(self, trials: list[Any], **_: Any) -> None:
        """Report how many trials have ended, of those that there are."""
        Progress().report(sum(one.is_finished() for one in trials), None, now=True)


def save_at_notice() -> list[int]:
    """Let SIGTERM end ``fit()`` after it has saved the study; return a list that is then not empty.

    Call it after ``ray.init()``, whose handler of SIGTERM exits without a save.
    """
    received: list[int] = []

    def stop(number: int, frame: object) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, lambda *_: None)  # ``fit()`` sets its handler
    signal.signal(signal.SIGTERM, stop)
    return received
