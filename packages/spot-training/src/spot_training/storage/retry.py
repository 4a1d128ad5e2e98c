"""Errors of the file system: retries after transient ones, and the one behind another exception."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from spot_training.errors import one_line

T = TypeVar("T")

TRANSIENT_ERRNOS: Final = frozenset(
    getattr(errno, name)
    for name in (
        *("ESTALE", "EIO", "EREMOTEIO", "ETIMEDOUT"),  # NFS: stale handle; soft and softerr mounts, nfs(5)
        *("ENOTCONN", "ECONNRESET", "ECONNREFUSED", "EHOSTDOWN", "EHOSTUNREACH", "ENETUNREACH"),
    )
    if hasattr(errno, name)
)
"""Errors after which a retry may succeed; not a full or read-only disk."""
FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_FULL_BYTES: Final = 1 << 20
"""A writer that fails with fewer free bytes has filled the disk."""
_log = logging.getLogger("spot_training")


@dataclass(frozen=True)
class RetryPolicy:
    """Retries calls after transient errors for up to ``seconds``, with exponential backoff of 0.2 to 5 s.

    Default 120 s: a Spot notice leaves no more time. The EFS mount helper mounts with ``hard``: calls block;
    one without progress for ``hang_seconds`` is abandoned (`BoundedCalls`) and not retried.
    """

    seconds: float = 120.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    hang_seconds: float = 600.0

    def call(self, description: str, action: Callable[[], T]) -> T:
        """Return the result of ``action``; raises its last ``OSError`` if retries fail."""
        started, pause = self.clock(), 0.2
        while True:
            try:
                result = action()
            except OSError as error:
                spent = self.clock() - started
                if error.errno not in TRANSIENT_ERRNOS or spent + pause > self.seconds:
                    raise
                if pause == 0.2:
                    _log.warning("%s: %s; retrying for %.0f s", description, one_line(error), self.seconds)
                self.sleep(pause)
                pause = min(2 * pause, 5.0)
            else:
                if pause != 0.2:
                    _log.warning("%s: succeeded after %.1f s", description, self.clock() - started)
                return result


def os_error_behind(error: RuntimeError, free_bytes: Callable[[], int | None]) -> Exception:
    """Return the ``OSError`` behind an error, if any: PyTorch's "unexpected pos 64 vs 0" is a full disk."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return cause
        cause = cause.__cause__ or cause.__context__
    free = free_bytes()
    is_full = free is not None and free < _FULL_BYTES
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if is_full else error
