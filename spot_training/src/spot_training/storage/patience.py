"""How long a file system that is gone is waited for."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from spot_training.errors import one_line

T = TypeVar("T")

TRANSIENT: Final = frozenset(
    getattr(errno, name)
    for name in (
        *("ESTALE", "EIO", "EREMOTEIO", "ETIMEDOUT"),  # NFS: stale handle; soft and softerr mounts, nfs(5)
        *("ENOTCONN", "ECONNRESET", "ECONNREFUSED", "EHOSTDOWN", "EHOSTUNREACH", "ENETUNREACH"),
    )
    if hasattr(errno, name)
)
"""Errors after which the same call may succeed. A full disk or a read-only one is none of them."""

_log = logging.getLogger("spot_training")


def is_transient(error: OSError) -> bool:
    """Tell whether trying again may help."""
    return error.errno in TRANSIENT


@dataclass(frozen=True)
class Patience:
    """Tries again what fails with a transient error, for at most ``seconds``, with pauses of 0.2 to 5 s.

    120 s: a spot notice leaves no more, and EFS behind a failing zone or network comes back within minutes or
    not soon. (EFS is mounted ``hard`` by its helper: there a call blocks, for as long as it takes.)
    """

    seconds: float = 120.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def call(self, what: str, action: Callable[[], T]) -> T:
        """Return what ``action`` returns; the last ``OSError`` where it does not come right."""
        begun, pause = self.clock(), 0.2
        while True:
            try:
                result = action()
            except OSError as error:
                spent = self.clock() - begun
                if not is_transient(error) or spent + pause > self.seconds:
                    raise
                if pause == 0.2:
                    _log.warning("%s: %s; tried again for %.0f s", what, one_line(error), self.seconds)
                self.sleep(pause)
                pause = min(2 * pause, 5.0)
            else:
                if pause != 0.2:
                    _log.warning("%s: done after %.1f s", what, self.clock() - begun)
                return result
