"""Reports to the gpu-spot node agent through files; does nothing on other hosts."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

_REPORT_INTERVAL_SECONDS: Final = 10.0


class Agent:
    """Tells the node agent that the worker is ready, and how many requests it has completed.

    Args:
        ready_file: created when the worker is ready; None: not requested.
        report_file: gets the counts; None: not requested.
    """

    def __init__(self, ready_file: Path | None = None, report_file: Path | None = None) -> None:
        self._ready_file = ready_file
        self._report_file = report_file
        self._reported_at = -_REPORT_INTERVAL_SECONDS

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return the agent whose files are in ``GPU_SPOT_READY`` and ``GPU_SPOT_TELL``."""
        ready_file, report_file = environment.get("GPU_SPOT_READY"), environment.get("GPU_SPOT_TELL")
        return cls(Path(ready_file) if ready_file else None, Path(report_file) if report_file else None)

    def report_ready(self) -> None:
        """Report that requests can be delivered, once; tried again at each call if it fails."""
        if self._ready_file is not None:
            with contextlib.suppress(OSError):  # a full disk must not stop the worker
                self._ready_file.touch()
                self._ready_file = None

    def report(self, counts: Callable[[], Mapping[str, Any]]) -> None:
        """Report the counts since the start, at most every 10 s."""
        now = time.monotonic()
        if self._report_file is None or now < self._reported_at + _REPORT_INTERVAL_SECONDS:
            return
        self._reported_at = now
        temporary = self._report_file.with_name(f".{self._report_file.name}")
        with contextlib.suppress(OSError):  # a full disk must not stop the worker
            temporary.write_text(json.dumps(counts()))
            temporary.replace(self._report_file)
