"""Wait for real processes, threads and servers, with a timeout."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 150.0
"""Long enough for a slow and busy machine, and shorter than the limit of a test (`faulthandler_timeout`)."""


def wait_until(
    condition: Callable[[], T], seconds: float = TIMEOUT_SECONDS, interval_seconds: float = 0.02
) -> T:
    """Poll a condition until its result is true, and return the result."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"not true within {seconds:g} s"
        time.sleep(interval_seconds)
    return result


def run_process(command: Sequence[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return its status and texts."""
    return subprocess.run(
        command, **{"check": False, "timeout": TIMEOUT_SECONDS, **more}, capture_output=True, text=True
    )
