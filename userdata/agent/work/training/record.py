"""Record of a job attempt on this instance, for reports; the job neither waits for it nor fails with it.

Written at the attempt's start, at the command's start and end, at a notice, at the run's end, and every
minute: if an instance vanishes, the time is known to a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from contracts.jobs.attempt import WRITE_INTERVAL_SECONDS, JobAttempt, sum_of_saving
from userdata.agent.aws.job_attempts import JobAttemptTable
from userdata.agent.machine import log
from userdata.agent.machine.background import BackgroundRunner, Lane, at_once
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.work import notice, worker_report_file

_WRITE_SECONDS: Final = 120.0
"""Time limit of a write with all its retries, and of reading the checkpoints' directory."""
_FLUSH_SECONDS: Final = 10.0


class Recorder:
    """Writes the record of one attempt, in the background.

    An agent that restarts under the same lease continues the record.

    Args:
        store: the job table's attempts.
        attempt: the new attempt.
        newest: returns the modification time of the newest checkpoint (epoch seconds); 0 without one.
        clock: wall and monotonic time.
        directory: the agent's runtime directory, with the notice.
    """

    def __init__(
        self,
        store: JobAttemptTable,
        attempt: JobAttempt,
        newest: Callable[[], float],
        clock: Clock,
        directory: Path,
        run_in_background: BackgroundRunner = at_once,
    ) -> None:
        self._store = store
        self._newest = newest
        self._clock = clock
        self._directory = directory
        self._lane = Lane("attempt record", run_in_background, clock, _WRITE_SECONDS)
        self._next_write_at = 0.0
        self._is_failing = False
        self._has_started = self._has_report = False
        self._saving_before: float | None = 0.0
        try:
            before = store.read(attempt.token)
        except AgentError as error:
            log.warning("earlier attempt record not read", error=str(error))
            before = None
        if before is None or before.instance != attempt.instance:
            self._attempt = attempt
        else:
            self._attempt = replace(before, ended=0.0, end="")

    def record_start(self) -> None:
        """Record the command's start from the newest checkpoint."""
        self._lane.submit(partial(self._record_start, self._clock.wall()))

    def _record_start(self, now: float) -> None:
        newest, before = self._newest(), self._attempt
        if before.starts == 0:
            attempt = replace(before, started=now, resumed=newest)
        else:
            # Without a recorded end the agent died: count until its last write.
            attempt = replace(before, lost=before.lost + before.lost_seconds(newest))
        if before.starts:
            self._saving_before = before.saving
        self._has_started, self._has_report = True, False
        attempt = replace(attempt, restarted=now, starts=before.starts + 1, stopped=0.0, checkpoint=newest)
        self._write(replace(attempt, saving=None, exporting=0.0))

    def record_stop(self) -> None:
        """Record the command's end."""
        self._lane.submit(partial(self._record_stop, self._clock.wall()))

    def _record_stop(self, now: float) -> None:
        self._read_report()
        self._write(replace(self._attempt, stopped=now, checkpoint=self._newest()))

    def poll(self) -> None:
        """Write the record if a minute has passed or a notice is new; cheap to call in every loop."""
        self._lane.poll()
        if self._lane.is_idle:
            self._lane.submit(self._record)

    def _record(self) -> None:
        self._read_report()  # the first report of a start has the step that it resumes from
        is_new_notice = not self._attempt.notice_at and notice.read(self._directory) is not None
        if is_new_notice or self._clock.monotonic() >= self._next_write_at:
            self._write(replace(self._attempt, checkpoint=self._newest()))

    def record_end(self, end: str) -> None:
        """Record the end of the run; ``end`` is its ``RunEnd``."""
        now = self._clock.wall()
        self._lane.submit(lambda: self._write(replace(self._attempt, ended=now, end=end)))
        self._lane.flush(_FLUSH_SECONDS)

    def _read_report(self) -> None:
        """Add the report of the command's last start to the attempt."""
        attempt = self._attempt
        report = worker_report_file.read_job(self._directory) if self._has_started else None
        if report is None:
            return
        if report.has_step:
            if not self._has_report and attempt.step is not None:
                attempt = replace(attempt, repeated=attempt.repeated + max(0, attempt.step - report.step))
            first = report.step if attempt.first_step is None else attempt.first_step
            attempt = replace(attempt, first_step=first, step=report.step)
            self._has_report = True
        if not attempt.exporting and report.is_complete:
            attempt = replace(attempt, exporting=self._clock.wall())
        self._attempt = replace(attempt, saving=sum_of_saving(self._saving_before, report.saving))

    def _write(self, attempt: JobAttempt) -> None:
        self._next_write_at = self._clock.monotonic() + WRITE_INTERVAL_SECONDS
        current = None if attempt.notice_at else notice.read(self._directory)
        if current is not None:
            attempt = replace(attempt, notice_at=current.received_at, cause=current.kind)
        self._attempt = replace(attempt, last_seen_at=self._clock.wall())
        try:
            self._store.write(self._attempt)
        except AgentError as error:
            if not self._is_failing:
                log.warning("attempt record not written", error=str(error))
            self._is_failing = True
            return
        self._is_failing = False
