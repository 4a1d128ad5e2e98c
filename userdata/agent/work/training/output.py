"""The job's standard output and error: forwarded to the journal, and counted for stall detection."""

from __future__ import annotations

import os
import threading
from typing import Final

_PIECE_BYTES: Final = 65_536
_FLUSH_SECONDS: Final = 1.0


class Output:
    """Forwards the output written to its pipes, and counts the writes.

    Args:
        to: file descriptor to forward to; if it blocks, the job's writes block too.
    """

    def __init__(self, to: int = 1) -> None:
        self._to = to
        self.pieces = 0
        """Number of reads with output; monotonically increasing."""
        self._newest: threading.Thread | None = None

    def pipe(self) -> int:
        """Return the write end of a new pipe; the caller closes it once the process has inherited it.

        Descendants may keep it open after the process has ended: it is read until the last one closes it.
        """
        read, write = os.pipe2(os.O_CLOEXEC)
        self._newest = threading.Thread(target=self._forward, args=(read,), name="output", daemon=True)
        self._newest.start()
        return write

    def flush(self) -> None:
        """Wait at most a second until the last output of an ended process is forwarded."""
        if self._newest is not None:
            self._newest.join(_FLUSH_SECONDS)

    def _forward(self, read: int) -> None:
        with open(read, "rb", buffering=0) as pipe:
            while piece := pipe.read(_PIECE_BYTES):
                self.pieces += 1
                remaining = memoryview(piece)
                try:
                    while remaining:
                        remaining = remaining[os.write(self._to, remaining) :]
                except OSError:
                    continue  # the output is lost, but the job must not block
