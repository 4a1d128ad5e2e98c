"""What the agent is told: how far the training is, and that it is done."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from spot_training.errors import one_line

TELL_VARIABLE: Final = "GPU_SPOT_TELL"
DONE_VARIABLE: Final = "GPU_SPOT_DONE"
TELL_EVERY: Final = 10.0
_log = logging.getLogger("spot_training")


class Progress:
    """Writes ``{"step": n, "steps": N}`` to ``$GPU_SPOT_TELL``, at most every ten seconds.

    Without that variable it does nothing. Nothing here ends a training: what cannot be written is said once.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        environment = os.environ if environment is None else environment
        self._tell = environment.get(TELL_VARIABLE)
        self._done = environment.get(DONE_VARIABLE)
        self._clock = clock
        self._next = clock()
        self._complained = False

    def tell(self, step: int, steps: int | None, *, now: bool = False) -> None:
        """Say that ``step`` steps of ``steps`` are done; ``now``: also when it was said a moment ago."""
        if not self._tell or (not now and self._clock() < self._next):
            return
        self._next = self._clock() + TELL_EVERY
        body = {"step": int(step)} if steps is None else {"step": int(step), "steps": int(steps)}
        path = Path(self._tell)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            new.write_text(json.dumps(body) + "\n")
            new.replace(path)
        except OSError as error:
            self._complain(error)

    def done(self) -> None:
        """Create ``$GPU_SPOT_DONE``: nothing is left to do, whatever the exit code and whatever comes."""
        try:
            if self._done:
                Path(self._done).touch()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            _log.warning("the agent cannot be told: %s", one_line(error))
            self._complained = True
