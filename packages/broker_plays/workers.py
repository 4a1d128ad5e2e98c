"""A crowd's workers: what starts one, and workers that are processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from packages import run_recorder
from packages.environments import ROOT

NOTICE_SECONDS: Final = 120.0
FUNCTION: Final = "packages.broker_plays.functions:double"
PATHS: Final = os.pathsep.join([str(ROOT), str(ROOT / "packages" / "spot-work" / "src")])
"""``PYTHONPATH`` of a worker."""


class Worker(Protocol):
    """One worker of a crowd."""

    @property
    def ready(self) -> Path:
        """There once it is ready."""
        ...

    @property
    def record(self) -> Path:
        """Where its runs are recorded."""
        ...

    def kill(self) -> None:
        """Take it away without a notice."""
        ...

    def drain(self) -> None:
        """Tell it to drain."""
        ...

    def wait(self) -> bool:
        """Wait until it has ended; tell whether it ended well, within a notice."""
        ...


class Stable(Protocol):
    """Starts workers: ``command`` has the arguments of Python, ``url`` is the broker's."""

    def start(self, number: int, command: list[str], url: str) -> Worker:
        """Start one on the broker at ``url``; ``number`` is its own."""
        ...

    def output(self) -> str:
        """Return the end of what the workers said."""
        ...


@dataclass(frozen=True)
class _Process:
    process: subprocess.Popen[bytes]
    ready: Path
    record: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def drain(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> bool:
        try:
            return self.process.wait(NOTICE_SECONDS) == 0
        except subprocess.TimeoutExpired:
            self.kill()
            return False


@dataclass(frozen=True)
class Processes:
    """Each worker is a process; ``folder`` holds what they say and write down."""

    folder: Path
    function: str = FUNCTION

    def start(self, number: int, command: list[str], url: str) -> Worker:
        """See ``Stable``."""
        ready, record = self.folder / f"ready-{number}", self.folder / "runs"
        environment = {**os.environ, "PYTHONPATH": PATHS, "SPOT_WORK_URL": url}
        environment |= {
            run_recorder.FUNCTION: self.function,
            run_recorder.RECORD: str(record),
            "GPU_SPOT_READY": str(ready),
        }
        argv = [sys.executable, *command]
        with (self.folder / "workers").open("ab") as log:
            process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=log, stderr=log)
        return _Process(process, ready, record)

    def output(self) -> str:
        """See ``Stable``."""
        return (self.folder / "workers").read_text(errors="replace")[-3000:]
