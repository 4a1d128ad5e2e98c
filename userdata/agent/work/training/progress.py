"""How far the job is and how fast: from what its script tells to what the heartbeat says.

The rate is that of the slower half of the last hour, beside that of the faster. A script that resumes and
jumps to its step, or compiles for minutes before the first, is wrong in one half only.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

from contracts.registry.item import Progress
from userdata.agent.machine import log
from userdata.agent.work import worker_report_file as tell

WINDOW_SECONDS: Final = 3600.0
LEAST_SECONDS: Final = 600.0
"""What was told over less time is no rate yet."""


class Pace:
    """Measures what is told, step by step; pure."""

    def __init__(self) -> None:
        self._told: deque[tuple[float, int]] = deque()
        self._began: float | None = None

    def restart(self) -> None:
        """Forget it all: another process tells from now on."""
        self._told.clear()
        self._began = None

    def see(self, step: int, steps: int, at: float) -> Progress:
        """Return the progress once ``step`` of ``steps`` was told at ``at`` (epoch seconds).

        A step back begins anew: the script has resumed from an older checkpoint.
        """
        if self._told and (step < self._told[-1][1] or at < self._told[-1][0]):
            self._told.clear()
        if not self._told or at > self._told[-1][0]:
            self._told.append((at, step))
        while at - self._told[0][0] > WINDOW_SECONDS and len(self._told) > 3:
            self._told.popleft()
        self._began = at if self._began is None else self._began
        slower, faster = sorted(self._halves())
        return Progress(step, steps, at, self._began, slower, faster if slower else 0.0)

    def _halves(self) -> tuple[float, float]:
        """Return the steps a second of both halves; zeros where too little was told."""
        (first, start), (last, end) = self._told[0], self._told[-1]
        if len(self._told) < 3 or last - first < LEAST_SECONDS:
            return 0.0, 0.0
        middle = (first + last) / 2
        at, step = min(list(self._told)[1:-1], key=lambda told: abs(told[0] - middle))
        return (step - start) / (at - first), (end - step) / (last - at)


class Steps:
    """Reads what the job in ``directory`` tells; what cannot be understood is complained about once."""

    def __init__(self, directory: Path) -> None:
        self._file = tell.tell_file(directory, 0)
        self._pace = Pace()
        self._complained = False

    def restart(self) -> None:
        """The job's process starts anew."""
        self._pace.restart()

    def progress(self, wall: float) -> Progress | None:
        """Return the progress as seen at ``wall`` (epoch seconds), None where none is told.

        What was told long ago is told again with its time: whoever reads it sees that it stands still.
        """
        try:
            told = tell.steps(self._file)
        except (OSError, ValueError) as error:
            if not self._complained:
                self._complained = True
                log.warning("the job's progress cannot be read", path=str(self._file), error=str(error))
            return None
        if told is None:
            return None
        step, steps, at = told
        return self._pace.see(step, steps, min(at, wall))
