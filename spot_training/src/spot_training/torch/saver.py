"""Asynchronous saves: one checkpoint at a time, written in a background thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundSaver:
    """Runs one save after another in a background thread.

    A save writes a copy of the state (``state.copy_to_cpu``), so that training can continue meanwhile.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is running."""
        return self._thread is not None and self._thread.is_alive()

    def check(self) -> None:
        """Raise the error of a finished save, if any."""
        if not self.busy:
            self.wait()

    def start(self, save: Callable[[], object]) -> None:
        """Start a save, after waiting for a running one."""
        self.wait()

        def carry_out() -> None:
            try:
                save()
            except BaseException as error:
                self._error = error

        # Not a daemon: the interpreter waits for the save when the script ends.
        self._thread = threading.Thread(target=carry_out, name="spot_training save")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the running save; raise its error, if any."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
