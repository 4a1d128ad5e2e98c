"""The last resort: whatever hangs, the work is dead before another instance may have the lease.

A supervisor can hang with its work: a look at a file system that does not answer waits as long as that does,
and goes on when it is back. A thread of its own sees the time, and looks at no file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from userdata.agent.machine import log
from userdata.agent.machine.clock import Clock

_LOOK_EVERY: Final = 1.0


@contextmanager
def fenced(
    dead_at: Callable[[], float], clock: Clock, strike: Callable[[], None], look_every: float = _LOOK_EVERY
) -> Iterator[None]:
    """Call ``strike``, once, if ``dead_at()`` (monotonic seconds) passes while the block runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(look_every):
            if clock.monotonic() >= dead_at():
                log.error("the lease ends and the work has not: all of it is killed")
                strike()
                return

    thread = threading.Thread(target=watch, name="fence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
