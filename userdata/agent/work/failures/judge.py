"""What follows from a fault, and from the end of a job: counted, told to the job table, rung.

The rules are ``faults``; here they meet what is outside.
"""

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
from userdata.agent.work.failures.faults import Breakdown, Next, Tally
from userdata.agent.work.failures.inspection import Inspector

_TELLS: Final = 10
_TELL_AGAIN: Final = 6.0

RunEnd = Literal["done", "failed", "host", "stopped"]
"""How a run ends: the job for good, the host to be replaced, or the instance taken or told to stop."""


class Judge:
    """Judges the faults of one run.

    Args:
        ring: tells people of one of the metrics that an alarm listens to.
        look_after: called while it waits.
    """

    def __init__(
        self,
        training: Training,
        job: Jobs,
        inspector: Inspector,
        ring: Callable[[str], None],
        clock: Clock,
        look_after: Callable[[], None],
    ) -> None:
        self._allowed = training.max_restarts
        self._job = job
        self._inspector = inspector
        self._ring = ring
        self._clock = clock
        self._look_after = look_after
        self._tally = Tally()

    @property
    def failures(self) -> int:
        """The job's own faults in a row."""
        return self._tally.failures

    def after(
        self, failure: Breakdown, checkpoint: float, *, has_progressed: bool, has_started: bool
    ) -> RunEnd | float:
        """Judge a failure and do what follows; return how the run ends, or the seconds until it tries again.

        ``checkpoint`` is when the newest one was changed; the others as in ``faults.after``.
        """
        self._look_after()
        verdict = faults.judge(failure, self._inspector.examine())
        self._tally, step = faults.after(
            self._tally, verdict, self._allowed, has_progressed=has_progressed, has_started=has_started
        )
        verdict = step.verdict
        log.error(
            "training failed",
            fault=verdict.fault,
            reason=verdict.reason,
            failures=self._tally.failures,
            allowed=self._allowed,
            next=step.next,
        )
        match step.next:
            case Next.AGAIN:
                return step.pause
            case Next.FAILED:
                return self.end("failed", verdict.reason)
            case Next.REPLACE:
                return self._blame_the_host(verdict.reason, checkpoint)
            case Next.LEAVE:
                return "stopped"

    def end(self, state: Literal["done", "failed"], reason: str = "") -> RunEnd:
        """End the job for good: the table first, which a later instance asks, then whoever is to hear it."""
        self._surely(lambda: self._job.mark(state, reason))
        if state == "failed":
            self._ring(names.METRIC_JOB_FAILURES)
        self._surely(self._job.take_down)
        return state

    def _blame_the_host(self, reason: str, checkpoint: float) -> RunEnd:
        self._ring(names.METRIC_HOST_FAULTS)
        try:
            count = self._job.count_host_fault(checkpoint)
        except AgentError as error:
            log.warning("a host's fault is not counted", error=str(error))
            count = 1
        if count > faults.MOST_HOSTS:
            return self.end("failed", f"{count} hosts in a row without a new checkpoint: {reason}")
        return "host"

    def _surely(self, tell: Callable[[], None]) -> None:
        """Say what must not be lost, or the command would run again; tried for a minute."""
        for _ in range(_TELLS - 1):
            try:
                return tell()
            except AgentError as error:
                log.warning("not said yet", error=str(error))
            self._look_after()
            self._clock.sleep(_TELL_AGAIN)
        return tell()
