"""What the job writes to its standard output and error: passed on to ours, into the journal, and counted."""

from __future__ import annotations

import os
import threading
from typing import Final

_PIECE: Final = 65_536
_SETTLES: Final = 1.0


class Output:
    """Passes on what is written into its pipes. A job that says nothing for long may hang.

    Args:
        to: the descriptor that all goes to; whoever reads there may make the job wait, as without us.
    """

    def __init__(self, to: int = 1) -> None:
        self._to = to
        self.pieces = 0
        """How often something was written; it only grows."""
        self._newest: threading.Thread | None = None

    def pipe(self) -> int:
        """Return the descriptor that a process writes to; the caller closes it once the process has it.

        Who inherits it may write on after the process has ended: it is read until the last has closed it.
        """
        read, write = os.pipe2(os.O_CLOEXEC)
        self._newest = threading.Thread(target=self._pass_on, args=(read,), name="output", daemon=True)
        self._newest.start()
        return write

    def settle(self) -> None:
        """Wait, for a second at most, until what a process that has ended wrote last is passed on."""
        if self._newest is not None:
            self._newest.join(_SETTLES)

    def _pass_on(self, read: int) -> None:
        with open(read, "rb", buffering=0) as pipe:
            while piece := pipe.read(_PIECE):
                self.pieces += 1
                left = memoryview(piece)
                try:
                    while left:
                        left = left[os.write(self._to, left) :]
                except OSError:
                    continue  # nobody reads what we say: the job must not stop for that
