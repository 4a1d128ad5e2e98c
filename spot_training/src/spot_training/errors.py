"""Exceptions of this package; each message is one line."""

from __future__ import annotations


class SpotTrainingError(Exception):
    """Base class of this package's errors."""


class SaveError(SpotTrainingError):
    """A checkpoint could not be written: a full disk, a read-only path, an unavailable file system.

    Earlier checkpoints are unchanged.
    """


class RestoreError(SpotTrainingError):
    """Checkpoints exist, but none of them can be loaded."""


class MismatchError(RestoreError):
    """The checkpoint is valid, but of another model or another number of processes."""


class InUseError(SpotTrainingError):
    """Another process uses this checkpoint directory."""


def one_line(error: BaseException) -> str:
    """Return an error's message in one line, with its type unless it is a `SpotTrainingError`."""
    text = " ".join(str(error).split()) or "no text"
    return text if isinstance(error, SpotTrainingError) else f"{type(error).__name__}: {text}"
