"""Follows a running trial: stores what it reports, and stops it once it is known to be pruned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from contracts.agent.study import Study, TrialResult
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.study.history import TrialOutcome, TrialRow, outcomes
from userdata.agent.study.reports import ReportReader, add_report
from userdata.agent.study.table import TrialTable

READ_SECONDS: Final = 2.0
WRITE_SECONDS: Final = 30.0
"""Interval of writes while no rung is reached, which only show the newest value."""
COMPARE_SECONDS: Final = 10.0
"""Interval of comparisons while an earlier trial has not come to the rung yet."""


class TrialMonitor:
    """Follows trial ``number``, whose lease this instance holds.

    Args:
        read_rows: returns the first trials of the study as stored, as many as asked for.
        on_prune: called once the trial is known to be pruned.
    """

    def __init__(
        self,
        study: Study,
        number: int,
        reports: ReportReader,
        table: TrialTable,
        read_rows: Callable[[int], Sequence[TrialRow]],
        clock: Clock,
    ) -> None:
        self._study = study
        self._number = number
        self._reports = reports
        self._table = table
        self._read_rows = read_rows
        self._clock = clock
        self._result: TrialResult | None = None
        self._is_written = True
        self._has_open_rung = False
        self._next_read_at = self._next_write_at = self._next_compare_at = clock.monotonic()
        self.on_prune: Callable[[], None] = lambda: None
        self.pruned: TrialOutcome | None = None
        """The outcome of a trial that is pruned; None before it is known."""

    @property
    def is_pruned(self) -> bool:
        """Whether the trial is known to be pruned."""
        return self.pruned is not None

    def begin(self) -> TrialResult:
        """Return the stored result; `poll` does nothing before.

        Raises:
            AgentError: DynamoDB returned an error or is unreachable.
        """
        self._result = self._table.read()
        self._has_open_rung = bool(self._result.rungs)
        return self._result

    def record_parameters(self, parameters: dict[str, str]) -> None:
        """Store the trial's parameters, which never change afterwards. Errors: as ``TrialTable.write``."""
        assert self._result is not None, "begin() comes first"
        result = TrialResult(self._result.revision, parameters)
        self._table.write(result)
        self._result = result

    def poll(self) -> None:
        """Read reports, store and compare them if due; cheap to call in every loop. Errors are retried."""
        if self._result is None or self.is_pruned or self._clock.monotonic() < self._next_read_at:
            return
        self._next_read_at = self._clock.monotonic() + READ_SECONDS
        try:
            self._read()
            if self._has_open_rung and self._clock.monotonic() >= self._next_compare_at:
                self._next_compare_at = self._clock.monotonic() + COMPARE_SECONDS
                self._write()  # others may wait for this rung
                self._compare()
            if self._clock.monotonic() >= self._next_write_at:
                self._write()
        except AgentError as error:
            log.warning("trial not compared", error=str(error))

    def flush(self) -> None:
        """Store all reports so far, before the trial's end is. Errors: as ``TrialTable.write``."""
        if self._result is not None:
            self._read()
            self._write()

    def _read(self) -> None:
        result = before = self._result
        assert before is not None
        assert result is not None
        for step, value in self._reports.read():
            result = add_report(result, self._study.prune, step, value)
        if result != before:
            self._result, self._is_written = result, False
            self._has_open_rung = self._has_open_rung or result.rungs != before.rungs

    def _write(self) -> None:
        self._next_write_at = self._clock.monotonic() + WRITE_SECONDS
        if not self._is_written:
            assert self._result is not None
            self._table.write(self._result)
            self._is_written = True

    def _compare(self) -> None:
        assert self._result is not None
        rows = list(self._read_rows(self._study.known_before(self._number)))
        rows += [TrialRow(TrialResult())] * (self._number - len(rows))
        outcome = outcomes(self._study, [*rows, TrialRow(self._result, "running")])[self._number]
        self._has_open_rung = outcome.is_open
        if outcome.state == "pruned":
            log.info("trial pruned", step=outcome.step, value=outcome.value)
            self.pruned = outcome
            self.on_prune()
