"""Handler of failed runs and of a job's end: counts, job table, metrics. The rules are in ``faults``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from contracts import names
from contracts.agent.config import Training
from userdata.agent.aws.jobs import Jobs
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.work.failures import faults
from userdata.agent.work.failures.faults import FailedRun, FailureCounts, NextAction
from userdata.agent.work.failures.inspection import Inspector

_MAX_WRITE_ATTEMPTS: Final = 10
_WRITE_RETRY_SECONDS: Final = 6.0

RunEnd = Literal["done", "failed", "host", "stopped", "ended"]
"""Outcome of a run: the job is done or failed, the host must be replaced, the instance stops, or this node
has ended and the node with rank 0 will say that the job is done."""


class FaultHandler:
    """Handles the failures of one run.

    Args:
        increment_metric: increments one of the metrics with an alarm.
        on_poll: called while it waits.
    """

    def __init__(
        self,
        training: Training,
        job: Jobs,
        inspector: Inspector,
        increment_metric: Callable[[str], None],
        clock: Clock,
        on_poll: Callable[[], None],
    ) -> None:
        self._allowed = training.max_restarts
        self._job = job
        self._inspector = inspector
        self._increment_metric = increment_metric
        self._clock = clock
        self._on_poll = on_poll
        self._counts = FailureCounts()

    @property
    def failures(self) -> int:
        """Job failures in a row."""
        return self._counts.failures

    def handle(
        self, failure: FailedRun, checkpoint: float, *, has_progressed: bool, has_started: bool
    ) -> RunEnd | float:
        """Classify and record a failure; return the run's outcome, or the seconds until the next try.

        ``checkpoint`` is the modification time of the newest one; for the other arguments see
        ``faults.respond``.
        """
        self._on_poll()
        verdict = faults.classify(failure, self._inspector.diagnose())
        self._counts, response = faults.respond(
            self._counts, verdict, self._allowed, has_progressed=has_progressed, has_started=has_started
        )
        verdict = response.verdict
        log.error(
            "training failed",
            fault=verdict.fault,
            reason=verdict.reason,
            failures=self._counts.failures,
            allowed=self._allowed,
            next=response.next,
        )
        match response.next:
            case NextAction.RETRY:
                return response.delay_seconds
            case NextAction.FAILED:
                return self.end("failed", verdict.reason)
            case NextAction.REPLACE:
                return self.report(verdict.reason, checkpoint)
            case NextAction.STOP:
                return "stopped"

    def end(self, state: Literal["done", "failed"], reason: str = "") -> RunEnd:
        """End the job: first in the table, which later instances read, then by metric and parameter."""
        self._write_with_retries(lambda: self._job.mark(state, reason))
        if state == "failed":
            self._increment_metric(names.METRIC_JOB_FAILURES)
        self._write_with_retries(self._job.publish_finished)
        return state

    def end_node(self) -> RunEnd:
        """End the part of a node whose end is not that of the job."""
        self._write_with_retries(self._job.end_node)
        return "ended"

    def report(self, reason: str, checkpoint: float) -> RunEnd:
        """Count a fault of this host; the job fails after several in a row, else another host has it."""
        self._increment_metric(names.METRIC_HOST_FAULTS)
        try:
            count = self._job.count_host_fault(checkpoint)
        except AgentError as error:
            log.warning("host fault not counted", error=str(error))
            count = 1
        if count > faults.MAX_HOSTS:
            return self.end("failed", f"{count} hosts in a row without a new checkpoint: {reason}")
        return "host"

    def _write_with_retries(self, write: Callable[[], None]) -> None:
        """Retry a write for a minute: if it were lost, the command would run again."""
        for _ in range(_MAX_WRITE_ATTEMPTS - 1):
            try:
                return write()
            except AgentError as error:
                log.warning("job state not written; retrying", error=str(error))
            self._on_poll()
            self._clock.sleep(_WRITE_RETRY_SECONDS)
        return write()
