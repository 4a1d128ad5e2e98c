"""The node agent of an instance: what it wants to hear of a worker. Elsewhere nobody listens."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

_EVERY: Final = 10.0
"""Seconds between two tellings."""


class Agent:
    """Hears that the worker is ready, how many requests it has ended, and how long it had any.

    Args:
        ready: the file by which it says so; None: nobody asks.
        tell: the file for the rest.
    """

    def __init__(self, ready: Path | None = None, tell: Path | None = None) -> None:
        self._ready = ready
        self._tell = tell
        self._at = -_EVERY

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the one that ``GPU_SPOT_READY`` and ``GPU_SPOT_TELL`` lead to."""
        ready, tell = environment.get("GPU_SPOT_READY"), environment.get("GPU_SPOT_TELL")
        return cls(Path(ready) if ready else None, Path(tell) if tell else None)

    def say_ready(self) -> None:
        """Tell it that requests may come."""
        if self._ready is not None:
            self._ready.touch()

    def tell(self, done: int, failed: int, busy: float) -> None:
        """Tell it, now and then, how many requests have ended since the start, so many with an error.

        ``busy`` are the seconds in which there was one to work on.
        """
        now = time.monotonic()
        if self._tell is None or now < self._at + _EVERY:
            return
        self._at = now
        beside = self._tell.with_name(f".{self._tell.name}")
        with contextlib.suppress(OSError):  # a full disk stops no work
            beside.write_text(json.dumps({"done": done, "failed": failed, "busy": round(busy, 3)}))
            beside.replace(self._tell)
