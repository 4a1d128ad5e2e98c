"""A process with a trainer whose driver and whose checkpoints' file system hang once its job runs."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

from tests.node.bench import Bench
from tests.node.configs import FakeClock
from tests.node.fake_nvml import FakeGpu, FakeNvml
from tests.node.metadata import MetadataServer
from userdata.agent.machine.background import in_thread
from userdata.agent.machine.clock import SystemClock
from userdata.agent.metrics.gpus import Gpus
from userdata.agent.work.failures.inspection import Inspector
from userdata.agent.work.training import train

JOB = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path("saved.part").write_text(repr(time.time()))
    pathlib.Path("saved.part").rename("saved")
    sys.exit()
signal.signal(signal.SIGTERM, save)
pathlib.Path("up").touch()
while True:
    signal.pause()
"""


class _HangingNvml(FakeNvml):
    # ruff: noqa: N802 - NVML's name
    def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeGpu) -> list[Any]:
        Path("gpus hang").touch()
        lock, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
        # As a call into libnvidia-ml: no Python in between, for ever, and no signal ends it.
        libc.pthread_mutex_lock(lock)
        libc.pthread_mutex_lock(lock)
        return []


class _Clock(FakeClock):
    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return SystemClock().monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(seconds, 0.0))


def _hang(path: Any) -> Any:
    Path("checkpoints hang").touch()
    return os.open("no-writer", os.O_RDONLY)  # a FIFO: blocks in the kernel, and again after each signal


def main(folder: Path) -> None:
    """Run the job in ``folder`` until SIGTERM; write how the run ended."""
    os.chdir(folder)
    os.mkfifo("no-writer")
    clock, scan, stat = _Clock(), os.scandir, os.stat
    bench = Bench(folder, clock, MetadataServer())
    bench.run_in_background = in_thread
    gpus = Gpus(_HangingNvml([FakeGpu("GPU-1")]), expected=1)
    bench.looks = Inspector(gpus, (folder, None), {}, lambda: False, clock, run_in_background=in_thread)
    mount = str(bench.checkpoints.parent)

    def hangs(path: Any) -> bool:
        return str(path).startswith(mount) and os.access("up", os.F_OK)

    def stat_(path: Any, **options: Any) -> Any:
        return _hang(path) if hangs(path) else stat(path, **options)

    with (
        mock.patch.object(os, "scandir", lambda path=".": _hang(path) if hangs(path) else scan(path)),
        mock.patch.object(os, "stat", stat_),
        mock.patch.object(train, "_GPU_CHECK_INTERVAL_SECONDS", 0.1),
        mock.patch.object(train, "_ACTIVITY_INTERVAL_SECONDS", 0.1),
    ):
        trainer = bench.trainer(f"cd {shlex.quote(str(folder))}; exec {sys.executable} -c {shlex.quote(JOB)}")
        signal.signal(signal.SIGTERM, lambda *_: trainer.stop())  # as `tasks.node` does
        os.write(1, f"{trainer.run()}\n".encode())
        os._exit(0)  # systemd does not wait for the threads either


if __name__ == "__main__":
    main(Path(sys.argv[1]))
