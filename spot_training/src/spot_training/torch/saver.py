"""Saving beside the training: one checkpoint at a time, written by a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Saver:
    """Carries out one save after another in the background.

    A save works on a copy of the state (``state.staged``), so that the next step may begin while it writes.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()

    def check(self) -> None:
        """Raise what a save that has ended raised."""
        if not self.busy:
            self.wait()

    def start(self, save: Callable[[], object]) -> None:
        """Begin a save; one that is under way is waited for."""
        self.wait()

        def carry_out() -> None:
            try:
                save()
            except BaseException as error:
                self._error = error

        # No daemon: a script that ends while a save is under way lets it finish.
        self._thread = threading.Thread(target=carry_out, name="spot_training save")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the save that is under way; raise what it raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
