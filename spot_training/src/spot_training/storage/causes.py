"""The operating system's error behind another exception of a writer."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

_FULL_BYTES: Final = 1 << 20
"""A writer that fails with fewer free bytes has filled the disk."""


def os_error_behind(error: Exception, free_bytes: Callable[[], int | None]) -> Exception:
    """Return the ``OSError`` that caused a ``RuntimeError``, or the error itself.

    Libraries report a failed write in their own way: PyTorch's "unexpected pos 64 vs 0" is a full disk.
    """
    if not isinstance(error, RuntimeError):
        return error
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return cause
        cause = cause.__cause__ or cause.__context__
    free = free_bytes()
    if free is not None and free < _FULL_BYTES:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return error
