"""Wait for what real processes, threads and servers do, and fail when they do not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE: Final = 600.0
"""Seconds after which what a test waits for is taken to hang, however slow or busy the machine."""


def until(condition: Callable[[], T], seconds: float = PATIENCE, every: float = 0.02) -> T:
    """Return what a condition returns once that is true; it is looked at ``every`` so many seconds."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not so within {seconds:g} s"
        time.sleep(every)
    return found
