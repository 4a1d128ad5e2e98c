"""Calls to storage: retried after transient errors, abandoned after a time without progress; their errors."""

from __future__ import annotations

import contextvars
import errno
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from spot_training.errors import log, one_line

T = TypeVar("T")

SLOW_SECONDS: Final = 30.0
"""Time without progress after which a line is logged."""
RESERVE_SECONDS: Final = 11.0
"""Before a deadline: the node agent kills ten seconds before it (docs/contract.md, "The time")."""
QUIET_SECONDS: Final = 10.0
"""Time without progress that counts as hanging when a deadline is near."""
_POLL_SECONDS: Final = 0.5
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
_running = threading.local()


def record_progress() -> None:
    """Record progress of the storage call that this thread carries out, if any."""
    if (call := getattr(_running, "call", None)) is not None:
        call.progress_at = time.monotonic()


class _Call:
    """One call, carried out in a thread of its own."""

    def __init__(self, description: str, action: Callable[[], Any]) -> None:
        self.description, self.progress_at = description, time.monotonic()
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended, self._action, self._context = threading.Event(), action, contextvars.copy_context()

    def carry_out(self) -> None:
        _running.call = self
        try:
            self.result = self._context.run(self._action)
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()

    @property
    def quiet_seconds(self) -> float:
        return time.monotonic() - self.progress_at


class BoundedCalls:
    """Carries out storage calls, one at a time, and abandons one that makes no progress.

    NFS with ``hard`` and FUSE block a call until the server answers, and only SIGKILL ends it. So each call
    has a thread of its own, which is abandoned after ``limit_seconds`` without progress (`record_progress`),
    or shortly before ``seconds_left()`` is 0. While an abandoned call blocks, no further one is started.
    """

    def __init__(self, limit_seconds: float, seconds_left: Callable[[], float | None] = lambda: None) -> None:
        self._limit_seconds, self.seconds_left = limit_seconds, seconds_left
        self._abandoned: _Call | None = None

    def call(self, description: str, action: Callable[[], T]) -> T:
        """Return the result of ``action``, or raise its error; ``TimeoutError``: no progress, not retried."""
        if self._abandoned is not None:
            if not self._abandoned.ended.is_set():
                raise self._timeout(self._abandoned, "still no answer")
            log.warning("%s: answers again", self._abandoned.description)
            self._abandoned = None
        running = _Call(description, action)
        threading.Thread(target=running.carry_out, name="spot_training storage", daemon=True).start()
        has_logged = False
        while not running.ended.wait(_POLL_SECONDS):
            quiet, remaining = running.quiet_seconds, self.seconds_left()
            is_late = remaining is not None and remaining <= RESERVE_SECONDS and quiet >= QUIET_SECONDS
            if is_late or quiet >= self._limit_seconds:
                self._abandoned = running
                raise self._timeout(running, "no answer")
            if quiet >= SLOW_SECONDS and not has_logged:
                has_logged = True
                log.warning(
                    "%s: no answer from the storage for %.0f s; waiting for up to %.0f s",
                    *(description, quiet, self._limit_seconds),
                )
        if running.error is not None:
            raise running.error
        result: T = running.result
        return result

    @staticmethod
    def _timeout(call: _Call, text: str) -> TimeoutError:
        return TimeoutError(f"{call.description}: {text} from the storage for {call.quiet_seconds:.0f} s")


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
                    log.warning("%s: %s; retrying for %.0f s", description, one_line(error), self.seconds)
                self.sleep(pause)
                pause = min(2 * pause, 5.0)
            else:
                if pause != 0.2:
                    log.warning("%s: succeeded after %.1f s", description, self.clock() - started)
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
