"""A copy of the state that is written if a notice comes while the script is busy between two steps.

A validation, a generation or a step may last longer than the notice. Meanwhile a thread watches for the
notice, on all ranks; it writes the copy and ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from spot_training.errors import one_line, say
from spot_training.notice import Notice
from spot_training.torch.nodes import ALONE

_POLL_SECONDS: Final = 0.2
_EXIT_SECONDS: Final = 10.0
"""Time for the script to end by itself after the save; it may be inside a call that no signal interrupts."""


class Standby:
    """Holds one save at a time; ``ranks``: ``TorchRanks``, to start it on all ranks together."""

    def __init__(self, notice: Notice, ranks: Any) -> None:
        self._notice, self._ranks, self._condition = notice, ranks, threading.Condition()
        self._save: Callable[[], object] | None = None
        self._is_watching = self._has_started = False
        self._has_finished = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_armed(self) -> bool:
        """Whether it has a save; the same on all ranks between two of their agreements."""
        return self._save is not None

    def arm(self, save: Callable[[], object]) -> None:
        """Hold a save, and start it at the notice."""
        with self._condition:
            self._save, self._is_watching = save, True
            self._condition.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="spot_training standby", daemon=True)
            self._thread.start()

    def disarm(self) -> bool:
        """Stop watching; return whether the save has started, else it never will by itself."""
        with self._condition:
            self._is_watching = False
            return self._has_started

    def complete(self) -> None:
        """Run the save, or wait for it if it has started; raise its error."""
        if not self._has_started and self._save is not None:
            self._run(self._save)
        self._has_finished.wait()
        if self._error is not None:
            raise self._error

    def drop(self) -> None:
        """Forget the save after ``disarm``."""
        self._save = None

    def _watch(self) -> None:
        while True:
            with self._condition:
                while not self._is_watching:
                    self._condition.wait()
            is_noticed = self._notice.received or self._ranks.is_stop_requested()
            if is_noticed and (save := self._begin()) is not None:
                self._ranks.request_stop()
                self._run(save)
                break
            with self._condition:
                self._condition.wait(_POLL_SECONDS)
        if self._error is None:
            self._end_process()
        else:
            say(f"not saved at the notice: {one_line(self._error)}")

    def _begin(self) -> Callable[[], object] | None:
        """Return the save, which has then started; None if it was disarmed meanwhile."""
        with self._condition:
            save = self._save if self._is_watching else None
            self._has_started = save is not None
        return save

    def _run(self, save: Callable[[], object]) -> None:
        try:
            save()
        except BaseException as error:
            self._error = error
        finally:
            self._has_finished.set()

    def _end_process(self) -> None:
        """Raise ``SystemExit(0)`` in the main thread, else end the process; other nodes go on without it."""
        getattr(self._ranks, "world", ALONE).renew("saved for a node with a notice")
        self._notice.exits = True
        main = threading.main_thread().ident
        if self._notice.has_handler and main is not None:
            signal.pthread_kill(main, signal.SIGTERM)
        threading.Event().wait(_EXIT_SECONDS)  # this thread ends with the interpreter
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
