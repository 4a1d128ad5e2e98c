"""Fencing: kills the work before another instance can acquire the lease, even if the supervisor hangs.

A supervisor can hang together with its work, for example in a call on a file system that does not respond.
The fence is a separate thread that checks the time only and touches no file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock

_POLL_INTERVAL_SECONDS: Final = 1.0


@contextmanager
def fenced(
    deadline: Callable[[], float],
    clock: Clock,
    kill: Callable[[], None],
    poll_interval: float = _POLL_INTERVAL_SECONDS,
) -> Iterator[None]:
    """Call ``kill`` once if ``deadline()`` (monotonic seconds) passes while the block runs."""
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(poll_interval):
            if clock.monotonic() >= deadline():
                log.error("lease expires; work is killed")
                kill()
                return

    thread = threading.Thread(target=watch, name="fence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
