"""The values that a trial reports: lines that ``spot_training.report`` appends to ``$GPU_SPOT_REPORTS``.

The file is beside the trial's checkpoints, so a value that was reported before a checkpoint outlives a lost
instance. It is not trusted: reading does not block, and follows no link.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Final

from contracts.agent.study import Pruning, TrialResult
from userdata.agent.machine import log

MAX_STEP: Final = 10**15
_MAX_BYTES: Final = 1 << 20
"""Maximum bytes of one reading."""


def add_report(result: TrialResult, prune: Pruning | None, step: int, value: float) -> TrialResult:
    """Return the result with one more report.

    A step that is not above the last one is a repetition after a resumption: the first value counts. A value
    counts for all rungs at or before its step that have none.
    """
    if result.value and step <= result.step:
        return result
    text = repr(value)
    rungs = 0 if prune is None else prune.rungs_until(step)
    return replace(
        result,
        rungs=(*result.rungs, *[text] * (rungs - len(result.rungs))),
        step=step,
        value=text,
    )


class ReportReader:
    """Reads the lines of a file that another process appends to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._has_warned = False

    def read(self) -> list[tuple[int, float]]:
        """Return step and value of the reports since the last call; malformed lines are logged once."""
        reports = []
        while lines := self._read_lines():
            for line in filter(None, lines):
                report = _parse(line)
                if report is not None:
                    reports.append(report)
                elif not self._has_warned:
                    self._has_warned = True
                    log.warning("trial report not readable", path=str(self._path))
        return reports

    def _read_lines(self) -> list[bytes]:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return []
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return []
            data = os.pread(file, _MAX_BYTES, self._offset)
        except OSError:
            return []
        finally:
            os.close(file)
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_MAX_BYTES:]
        return lines


def read_answer(path: Path) -> object:
    """Return the JSON value in a file of the job's user, at most 64 KiB; None without one."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return json.loads(os.read(file, 1 << 16)) if stat.S_ISREG(os.fstat(file).st_mode) else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)


def _parse(line: bytes) -> tuple[int, float] | None:
    try:
        step, value = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    if type(step) is not int or not 0 <= step <= MAX_STEP or type(value) not in (int, float):
        return None
    try:
        return step, float(value)
    except OverflowError:
        return None
