"""Saves and copies beside the training: one at a time, in a background thread."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - registers its end, before ours
import threading
import time
import weakref
from collections.abc import Callable
from typing import Final

from spot_training.errors import one_line, say

_savers: Final[weakref.WeakSet[BackgroundSaver]] = weakref.WeakSet()


class BackgroundSaver:
    """Runs one save of a copied state after another in a thread, so that the training continues meanwhile."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._seconds: float | None = None
        self._started_at, self._can_give_way = 0.0, True
        self.gives_way = threading.Event()
        """Set: the running save is to end without a commit."""
        _savers.add(self)

    def must_give_way(self, seconds_left: float | None) -> bool:
        """Return whether the running save and another one would not both end in ``seconds_left``.

        The other one is of a newer state; it is assumed to take as long as the last one did.
        """
        if not self.busy or not self._can_give_way or seconds_left is None:
            return False
        elapsed = time.monotonic() - self._started_at
        whole = elapsed if self._seconds is None else self._seconds
        return whole <= seconds_left < max(whole - elapsed, 0.0) + whole

    @property
    def busy(self) -> bool:
        """Whether a save is running."""
        return self._thread is not None and self._thread.is_alive()

    def check(self) -> None:
        """Raise the error of a finished save, if any."""
        if not self.busy:
            self.wait()

    def start(self, save: Callable[[], object], *, gives_way: bool = True) -> None:
        """Start a save, after waiting for a running one.

        ``gives_way``: whether a save at a notice may replace it; not one that is to stay: the steps after it
        are trained again, but a best state that is lost is not found again.
        """
        self.wait()
        self._can_give_way = gives_way
        self._started_at = time.monotonic()

        def carry_out() -> None:
            try:
                save()
                if not self.gives_way.is_set():
                    self._seconds = time.monotonic() - self._started_at
            except BaseException as error:
                self._error = error

        # Not a daemon: `_wait_at_exit` waits for the save when the script ends.
        self._thread = threading.Thread(target=carry_out, name="spot_training save")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the running save; raise its error, if any."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.gives_way.clear()
        if self._error is not None:
            error, self._error = self._error, None
            raise error


def _wait_at_exit() -> None:
    """Wait for saves that run when the script ends, and print an error that it has not seen."""
    for saver in list(_savers):
        try:
            saver.wait()
        except BaseException as error:
            say(f"the last save failed: {one_line(error)}")


# Before executors end, which boto3 and a script's own writer use: they end before ``atexit``'s functions, and
# what was registered last is called first (CPython, ``threading._register_atexit``).
getattr(threading, "_register_atexit", atexit.register)(_wait_at_exit)
