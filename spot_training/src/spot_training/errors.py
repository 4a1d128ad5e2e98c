"""What can go wrong here; each text is one line for whoever reads the log."""

from __future__ import annotations


class SpotTrainingError(Exception):
    """Something that this package cannot carry out."""


class SaveError(SpotTrainingError):
    """A checkpoint could not be written: a full disk, a read-only path, a file system that is gone.

    What was saved before is untouched.
    """


class RestoreError(SpotTrainingError):
    """Checkpoints are there, and none of them can be loaded."""


class MismatchError(RestoreError):
    """The checkpoint is whole, and of another model or another number of processes."""


class InUseError(SpotTrainingError):
    """Another process trains in this folder."""


def one_line(error: BaseException) -> str:
    """Return what an error says, in one line, its type where that tells more."""
    text = " ".join(str(error).split()) or "no text"
    return text if isinstance(error, SpotTrainingError) else f"{type(error).__name__}: {text}"
