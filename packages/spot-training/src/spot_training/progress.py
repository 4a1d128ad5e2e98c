"""Progress reports to the node agent: the current step, and how the training ended."""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from spot_training import rehearsal
from spot_training.errors import UnfinishedError, log, one_line, say

PROGRESS_FILE_VARIABLE: Final = "GPU_SPOT_TELL"
LOCAL_RANK_VARIABLE: Final = "LOCAL_RANK"
"""Set by torchrun; of a machine's processes the first exports, so only it reports that all is finished."""
RANK_VARIABLE: Final = "RANK"
"""Set by torchrun, and by ``init()`` for each world of nodes."""
DONE_FILE_VARIABLE: Final = "GPU_SPOT_DONE"
REPORT_INTERVAL_SECONDS: Final = 10.0
_MAX_ERROR_CHARACTERS: Final = 300
_newest: dict[str, Progress] = {}
"""By file, the training that reports at the script's end: a script may have several, one after another."""


class Progress:
    """Writes ``{"step": n, "steps": N, "saving": seconds}`` to ``$GPU_SPOT_TELL``, at most every ten seconds.

    Without that variable it does nothing. A write error is logged once and not raised.
    """

    def __init__(
        self, *, environment: Mapping[str, str] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        environment = os.environ if environment is None else environment
        self._progress_file = environment.get(PROGRESS_FILE_VARIABLE)
        self._done_file = environment.get(DONE_FILE_VARIABLE)
        self._clock, self._next, self._process = clock, clock(), os.getpid()
        self._has_warned = self._is_finished = False
        self._body: dict[str, object] = {}
        self._error: BaseException | None = None
        self._is_first = environment.get(LOCAL_RANK_VARIABLE, "0") == "0"
        rank = environment.get(RANK_VARIABLE, "0")
        self._rank = int(rank) if rank.isdecimal() else 0
        self._rehearsal = rehearsal.current()
        self.saving_seconds = 0.0
        """For how long saves have paused the training since this process began."""
        self.is_interrupted: Callable[[], bool] = lambda: False
        """Whether the process ends because of a notice, and the training continues elsewhere."""
        if self._progress_file:
            _newest[self._progress_file] = self
            atexit.register(self._report_exit)

    def report(self, step: int, steps: int | None, *, now: bool = False) -> None:
        """Report that ``step`` of ``steps`` steps are done; ``now`` ignores the ten-second limit."""
        if self._rehearsal is not None:
            self._rehearsal.at(int(step))
        if not self._progress_file or (not now and self._clock() < self._next):
            return
        self._next = self._clock() + REPORT_INTERVAL_SECONDS
        self._body = {"step": int(step)} if steps is None else {"step": int(step), "steps": int(steps)}
        if self.saving_seconds:
            self._body["saving"] = round(self.saving_seconds, 3)
        self._write(self._body)

    def finished(self) -> None:
        """No step is left: its end, after exports, reports that the job is done, or an exception.

        Without this call, and below the last step, that end is a failure, whatever its exit code.
        """
        self._is_finished, self._error = True, None

    def failed(self, error: BaseException) -> None:
        """Keep an error of the training: the script's end reports it, also if the script has caught it."""
        self._error, self._is_finished = error, False

    def done(self) -> None:
        """Create ``$GPU_SPOT_DONE``: the job is finished, whatever the exit code."""
        try:
            if self._done_file:
                Path(self._done_file).touch()
        except OSError as error:
            self._warn_once(error)

    def _report_exit(self) -> None:
        """Report at the interpreter's exit: an uncaught exception, or that the script ended by itself."""
        if os.getpid() != self._process or _newest.get(self._progress_file or "") is not self:
            return  # a fork, or a later training of this script
        self._has_warned = True  # the agent's directory may be gone with the agent
        error: BaseException | None = getattr(sys, "last_value", None) or self._error
        if error is None and self._is_first and not (self._is_complete or self.is_interrupted()):
            steps = f" of {self._body['steps']}" if self._body.get("steps") else ""
            error = UnfinishedError(
                f"the script ended at step {self._body.get('step', 0)}{steps}, not at its end: it is started"
                " again; an end on purpose needs loop.stop(), Spot.finish() or Progress.finished()"
            )
            say(str(error))
        if error is not None:
            text = one_line(error)[:_MAX_ERROR_CHARACTERS]
            self._write({**self._body, "error": text, "error_type": type(error).__name__})
        elif self._is_first and self._is_complete:
            # Rank 0 exports the model: a node without it does not end the job.
            rank = {"rank": self._rank} if self._rank else {}
            self._write({**self._body, "finished": True, **rank})

    @property
    def _is_complete(self) -> bool:
        step, steps = self._body.get("step"), self._body.get("steps")
        return self._is_finished or (isinstance(step, int) and isinstance(steps, int) and step >= steps > 0)

    def _write(self, body: Mapping[str, object]) -> None:
        if not self._progress_file:
            return
        path = Path(self._progress_file)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            new.write_text(json.dumps(body) + "\n")
            new.replace(path)
        except OSError as error:
            self._warn_once(error)

    def _warn_once(self, error: OSError) -> None:
        if not self._has_warned:
            log.warning("progress not reported to the agent: %s", one_line(error))
            self._has_warned = True
