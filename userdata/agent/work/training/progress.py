"""Progress and throughput of a job, from its script's reports, for the heartbeat.

Both the rate of the slower and that of the faster half of the last hour are reported: a script that jumps to
its step on resume, or compiles for minutes before its first step, distorts only one half.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final

from contracts.registry.item import Progress
from userdata.agent.machine import log
from userdata.agent.work import worker_report_file

WINDOW_SECONDS: Final = 3600.0
MIN_SECONDS: Final = 600.0
"""Minimum time span of a rate."""


class ThroughputMeter:
    """Measures steps per second; pure."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._started_at: float | None = None

    def restart(self) -> None:
        """Discard all samples, as another process reports from now on."""
        self._samples.clear()
        self._started_at = None

    def update(self, step: int, steps: int, at: float) -> Progress:
        """Add a sample, ``step`` of ``steps`` at ``at`` (epoch seconds), and return the progress.

        A step back discards earlier samples: the script has resumed from an older checkpoint.
        """
        if self._samples and (step < self._samples[-1][1] or at < self._samples[-1][0]):
            self._samples.clear()
        if not self._samples or at > self._samples[-1][0]:
            self._samples.append((at, step))
        while at - self._samples[0][0] > WINDOW_SECONDS and len(self._samples) > 3:
            self._samples.popleft()
        self._started_at = at if self._started_at is None else self._started_at
        slower, faster = sorted(self._halves())
        return Progress(step, steps, at, self._started_at, slower, faster if slower else 0.0)

    def _halves(self) -> tuple[float, float]:
        """Return the steps per second of both halves; zeros if the samples do not suffice."""
        (first, start), (last, end) = self._samples[0], self._samples[-1]
        if len(self._samples) < 3 or last - first < MIN_SECONDS:
            return 0.0, 0.0
        middle = (first + last) / 2
        at, step = min(list(self._samples)[1:-1], key=lambda sample: abs(sample[0] - middle))
        return (step - start) / (at - first), (end - step) / (last - at)


class ProgressReader:
    """Reads the reports of the job in ``directory``; a malformed report is logged once."""

    def __init__(self, directory: Path) -> None:
        self._file = worker_report_file.report_path(directory, 0)
        self._throughput = ThroughputMeter()
        self._is_logged = False

    def restart(self) -> None:
        """Reset the throughput when the job's process starts."""
        self._throughput.restart()

    def read(self, wall: float) -> Progress | None:
        """Return the progress at ``wall`` (epoch seconds); None if the job reports none.

        An old report is returned with its own time, so that a reader can see that the job does not advance.
        """
        try:
            report = worker_report_file.read_steps(self._file)
        except (OSError, ValueError) as error:
            if not self._is_logged:
                self._is_logged = True
                log.warning("progress report not readable", path=str(self._file), error=str(error))
            return None
        if report is None:
            return None
        step, steps, at = report
        return self._throughput.update(step, steps, min(at, wall))
