"""The simulated command that prepares a dataset."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Final

PREPARE_SECONDS: Final = 600.0
"""Assumed duration; output is written at the end."""
_FILES: Final = 24
_BYTES: Final = 16_384


class PreparingProcess:
    """A fake ``subprocess.Popen`` in simulated time that derives 24 files from those in the folder."""

    first_step = step = 0
    loads = 0.0

    def __init__(self, environment: Mapping[str, str], clock: Callable[[], float], pid: int) -> None:
        self.pid = pid
        self._folder = Path(environment["GPU_SPOT_DATASETS"])
        self._clock = clock
        self._end = clock() + PREPARE_SECONDS
        self._code: int | None = None

    @property
    def next_checkpoint(self) -> float:
        """Infinity: it makes no checkpoints."""
        return math.inf

    @property
    def quiet_until(self) -> float:
        """Time of its end."""
        return self._end if self._code is None else 0.0

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._code is not None

    def poll(self) -> int | None:
        """Return the exit code once it has ended."""
        if self._code is None and self._clock() >= self._end:
            whole = hashlib.sha256()
            for path in sorted(path for path in self._folder.rglob("*") if path.is_file()):
                whole.update(path.read_bytes())
            for number in range(_FILES):
                body = hashlib.shake_256(whole.digest() + bytes([number])).digest(_BYTES)
                (self._folder / f"made-{number:03d}.bin").write_bytes(body)
            self._code = 0
        return self._code

    def signal(self, number: int) -> None:
        """SIGTERM and SIGKILL end it without output; the next start begins again."""
        if number in (SIGTERM, SIGKILL) and self._code is None:
            self._code = -number
