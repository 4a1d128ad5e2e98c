"""What the work tells about itself: ``$GPU_SPOT_TELL``, a small JSON file that it replaces when it likes.

``{"queueDepth": 17}``: how many tasks wait. ``{"step": 300, "steps": 9000}``: how many steps of a training
job are done, of how many. ``{"done": 700, "failed": 2, "busy": 310.5}``: how many requests a worker has ended
since its start, how many of them with an error, and for how many seconds it had any. Other keys are left
alone. The work is not trusted: whatever it puts there, the reader neither waits nor fails, and reads no more
than a few kilobytes.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Final, NamedTuple

from contracts.agent.names import READY_DIR
from contracts.registry.item import MOST_STEPS
from userdata.agent.machine import log

FRESH_SECONDS: Final = 120.0
"""What was told longer ago counts as not told: twice the period at which metrics are sent."""

_FILE: Final = "tell.json"
_MOST_BYTES: Final = 4096


def place(directory: Path, slot: int) -> Path:
    """Return the folder in which the worker of a slot may write, the only one of ours."""
    return directory / READY_DIR / str(slot)


def tell_file(directory: Path, slot: int) -> Path:
    """Return the file by which the worker of a slot tells."""
    return place(directory, slot) / _FILE


def make_place(directory: Path, slot: int) -> None:
    """Make the folder for a worker that starts, without what an earlier one told."""
    folder = place(directory, slot)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)  # whatever user the worker is; nothing else stands in there
    tell_file(directory, slot).unlink(missing_ok=True)


class Tales:
    """Reads what the workers told; a file that cannot be understood is complained about once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / READY_DIR
        self._complained: set[Path] = set()

    def queue_depths(self, wall: float) -> tuple[float, ...]:
        """Return a depth for each worker that told one lately, as seen at ``wall`` (epoch seconds)."""
        found = []
        for path in sorted(self._directory.glob(f"*/{_FILE}")):
            try:
                depth = _queue_depth(path, wall)
            except (OSError, ValueError) as error:
                if path not in self._complained:
                    self._complained.add(path)
                    log.warning("what a worker tells cannot be read", path=str(path), error=str(error))
                continue
            if depth is not None:
                found.append(depth)
        return tuple(found)


def steps(path: Path) -> tuple[int, int, float] | None:
    """Return the step, of how many, and when it was told (epoch seconds); None where a file tells none.

    Raises:
        ValueError, OSError: nonsense, or a file that cannot be read.
    """
    try:
        told, at = _told(path)
    except FileNotFoundError:
        return None
    step, of = told.get("step"), told.get("steps")
    if step is None and of is None:
        return None
    if type(step) is not int or type(of) is not int or not 0 <= step <= of <= MOST_STEPS or of == 0:
        raise ValueError(
            f"step is {str(step)[:40]} and steps {str(of)[:40]}, allowed: whole numbers, 0 ≤ step ≤ steps"
        )
    return step, of, at


class Ended(NamedTuple):
    """What a worker told at ``at`` (epoch seconds); ``busy`` seconds, None where it does not say."""

    done: int
    failed: int
    busy: float | None
    at: float


def requests(path: Path) -> Ended | None:
    """Return how many requests have ended; None where a file tells none.

    Raises:
        ValueError, OSError: nonsense, or a file that cannot be read.
    """
    try:
        told, at = _told(path)
    except FileNotFoundError:
        return None
    if (done := told.get("done")) is None:
        return None
    failed, busy = told.get("failed", 0), told.get("busy")
    if type(done) is not int or type(failed) is not int or not 0 <= failed <= done <= MOST_STEPS:
        raise ValueError(
            f"done is {str(done)[:40]} and failed {str(failed)[:40]}, "
            "allowed: whole numbers, 0 ≤ failed ≤ done"
        )
    if busy is not None and (type(busy) not in (int, float) or not 0 <= busy <= MOST_STEPS):
        raise ValueError(f"busy is {str(busy)[:40]}, allowed: seconds, 0 or more")
    return Ended(done, failed, busy, max(at, 0.0))


def _queue_depth(path: Path, wall: float) -> float | None:
    """Return None for what is stale or says nothing of a queue; raise ``ValueError`` for nonsense."""
    told, at = _told(path)
    depth = told.get("queueDepth")
    if depth is None or abs(wall - at) > FRESH_SECONDS:
        return None
    if type(depth) not in (int, float) or not 0 <= depth <= 2**53:
        raise ValueError(f"queueDepth is {str(depth)[:40]}, allowed: a number, 0 or more")
    return float(depth)


def _told(path: Path) -> tuple[dict[str, Any], float]:
    """Return what a file tells, and when it was written; raise ``ValueError`` for nonsense."""
    # A named pipe would keep us waiting, a link would lead elsewhere.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("no plain file")
        text = os.read(file, _MOST_BYTES + 1)
    finally:
        os.close(file)
    if len(text) > _MOST_BYTES:
        raise ValueError(f"longer than {_MOST_BYTES} bytes")
    try:
        told = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(told, dict):
        raise ValueError(f"{type(told).__name__}, allowed: a JSON object")
    return told, status.st_mtime
