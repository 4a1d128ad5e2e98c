"""Write down how a job fares on this instance, for people: nothing of the work waits for it or fails with it.

A write when the instance begins, at the command's start and end, at the notice, at the end of the run, and
one a minute: so it is known to a minute when an instance was lost that could say nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from contracts.jobs.attempt import JobAttempt
from userdata.agent.aws.job_attempts import JobAttemptTable
from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.work import notice

EVERY: Final = 60.0


class Recorder:
    """Keeps one stint's record; ``newest`` returns when the newest checkpoint was changed, 0 without one.

    ``directory`` is the agent's own, where the notice comes. An agent that was started again under the same
    lease goes on with what has been written.
    """

    def __init__(
        self,
        store: JobAttemptTable,
        begun: JobAttempt,
        newest: Callable[[], float],
        clock: Clock,
        directory: Path,
    ) -> None:
        self._store = store
        self._newest = newest
        self._clock = clock
        self._directory = directory
        self._due = 0.0
        self._is_failing = False
        try:
            before = store.read(begun.token)
        except AgentError as error:
            log.warning("what was recorded before is not known", error=str(error))
            before = None
        if before is None or before.instance != begun.instance:
            self._stint = begun
        else:
            self._stint = replace(before, ended=0.0, end="")

    def started(self) -> None:
        """The command starts, from the newest checkpoint that is there now."""
        now, newest, before = self._clock.wall(), self._newest(), self._stint
        if before.starts == 0:
            told = replace(before, started=now, resumed=newest)
        else:
            # Without an end of its own the agent had died: it lived when it last wrote.
            told = replace(before, lost=before.lost + lost(before, newest))
        self._write(replace(told, restarted=now, starts=before.starts + 1, stopped=0.0, checkpoint=newest))

    def stopped(self) -> None:
        """The command has ended."""
        self._write(replace(self._stint, stopped=self._clock.wall(), checkpoint=self._newest()))

    def look(self) -> None:
        """Write if a minute has passed, or at once if a notice has come; called again and again."""
        is_told = not self._stint.told and notice.read(self._directory) is not None
        if is_told or self._clock.monotonic() >= self._due:
            self._write(replace(self._stint, checkpoint=self._newest()))

    def ended(self, end: str) -> None:
        """The run has ended; ``end`` says how (``RunEnd``)."""
        self._write(replace(self._stint, ended=self._clock.wall(), end=end))

    def _write(self, stint: JobAttempt) -> None:
        self._due = self._clock.monotonic() + EVERY
        found = None if stint.told else notice.read(self._directory)
        if found is not None:
            stint = replace(stint, told=found.seen, cause=found.kind)
        self._stint = replace(stint, seen=self._clock.wall())
        try:
            self._store.write(self._stint)
        except AgentError as error:
            if not self._is_failing:
                log.warning("the job's history is not written", error=str(error))
            self._is_failing = True
            return
        self._is_failing = False


def lost(stint: JobAttempt, resumed: float) -> float:
    """Return how many seconds of the last start's work were in vain, if it goes on from the time ``resumed``.

    Where nobody saw the command end it counts until it was seen last: up to a minute too little.
    """
    if not stint.starts:
        return 0.0
    end = stint.stopped or stint.seen
    return max(0.0, end - max(resumed, stint.restarted))
