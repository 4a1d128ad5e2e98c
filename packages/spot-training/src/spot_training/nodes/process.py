"""A process that runs the script from one point on, again and again, in children of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

GO_ON_CODE: Final = 117
"""Exit code of a child after which the next one begins."""
_PR_SET_PDEATHSIG: Final = 1
_CHILDREN_SECONDS: Final = 5.0


def run_children(before_child: Callable[[], object]) -> None:
    """Return in a child; begin another if it ends by `go_on`, else end as the child did.

    The process id stays, so a launcher or agent above sees no end. It forwards SIGTERM; one that comes
    between two children ends it. ``before_child`` is called in this process before each child.
    """
    parent, child, is_stopping = os.getpid(), 0, False
    numbers = (signal.SIGTERM, signal.SIGINT)
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}

    def forward(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopping
        is_stopping = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    while True:
        before_child()
        _flush()  # else the child would write it, too
        signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
        if is_stopping:  # its state is saved, or cannot be
            _end_as(0)
        child = os.fork()
        if not child:
            for number, handler in handlers.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
            _end_with(parent)
            return
        signal.signal(signal.SIGTERM, forward)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child, too
        signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != GO_ON_CODE:
            _end_as(code)


def go_on() -> NoReturn:
    """End this child at once, from any thread, so that the next one begins; its children are killed."""
    _flush()
    _kill_children()
    os._exit(GO_ON_CODE)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _end_with(parent: int) -> None:
    """Let this process be killed when its parent ends (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _end_as(code: int) -> NoReturn:
    """End with a child's exit code, or by its signal."""
    _flush()
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def _kill_children() -> None:
    """Kill workers of data loaders, which only their parent can end."""
    numbers = list[int]()
    for path in Path("/proc/self/task").glob("*/children"):  # proc_tid_children(5)
        with contextlib.suppress(OSError):  # a thread that has ended
            numbers += [int(number) for number in path.read_text().split()]
    killed = [number for number in numbers if not _is_tracker(number)]
    for number in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    end_at = time.monotonic() + _CHILDREN_SECONDS
    for number in killed:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(number, os.WNOHANG) == (0, 0) and time.monotonic() < end_at:
                time.sleep(0.01)


def _is_tracker(number: int) -> bool:
    """Return whether a process is multiprocessing's resource tracker: it cleans up when this one is gone."""
    try:
        return b"resource_tracker" in Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return False
