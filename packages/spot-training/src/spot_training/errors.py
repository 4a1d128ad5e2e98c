"""Exceptions of this package, each message one line, and lines for the user."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final

log: Final = logging.getLogger("spot_training")
TRACEBACK_VARIABLE: Final = "SPOT_TRAINING_TRACEBACK"
"""If it is set, uncaught errors of this package are printed with their traceback."""


class SpotTrainingError(Exception):
    """Base class of this package's errors."""


class SaveError(SpotTrainingError):
    """A checkpoint could not be written, as on a full or read-only disk. Earlier ones are unchanged."""


class NoSpaceError(SaveError):
    """The storage is full, or this user's quota is used up."""


class RestoreError(SpotTrainingError):
    """Checkpoints exist, but none of them can be loaded."""


class MismatchError(RestoreError):
    """The checkpoint is valid, but of another model or another number of processes."""


class OtherRunError(MismatchError):
    """The checkpoint is valid, but of another run; it is not changed."""


class UnfinishedError(SpotTrainingError):
    """The script ended below the last step without saying that its training has ended."""


class AuditError(SpotTrainingError):
    """A restart would not resume this script as it is: the line says what, and the remedy."""


class InUseError(SpotTrainingError):
    """Another process, or another training of this process, uses this checkpoint directory."""


_hook = sys.excepthook
before_errors: Final[list[Callable[[BaseException], object]]] = []
"""Called with an uncaught error before it is printed."""


def print_errors_in_one_line() -> None:
    """Print uncaught errors of this package as one line on standard error, others as before."""
    global _hook
    if sys.excepthook is not _print_error:
        _hook, sys.excepthook = sys.excepthook, _print_error


def _print_error(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    for call in before_errors:
        call(error)
    if isinstance(error, SpotTrainingError) and not os.environ.get(TRACEBACK_VARIABLE):
        sys.stderr.write(f"{kind.__module__}.{kind.__qualname__}: {one_line(error)}\n")
    else:
        _hook(kind, error, traceback)


def one_line(error: BaseException) -> str:
    """Return an error's message in one line, with its type unless it is a `SpotTrainingError`."""
    text = " ".join(str(error).split()) or "no text"
    return text if isinstance(error, SpotTrainingError) else f"{type(error).__name__}: {text}"


def say(line: str) -> None:
    """Print one line on standard error, after the package's name; scripts may not configure logging."""
    sys.stderr.write(f"spot_training: {' '.join(line.split())}\n")
    sys.stderr.flush()
