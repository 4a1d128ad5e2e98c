"""The worker's side of the watchdog: starts the process, ticks, and asks for relayed connections."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from typing import Final

log: Final = logging.getLogger("spot_work")

_TICK_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 30.0
"""Maximum wait for the process's answer; a start on a busy host takes seconds."""
_END_SECONDS: Final = 5.0


class Watchdog:
    """Starts the process, and again if it ends; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._closed = threading.Event()
        with self._lock:
            self._start()
        threading.Thread(target=self._tick, name="spot-work-tick", daemon=True).start()

    def relay(self, module: str, url: str) -> int:
        """Return the local port whose next connection leads to the broker at ``url``; raises ``OSError``.

        ``module`` is a transport's, with a coroutine ``listen(url)`` that returns the port.
        """
        with self._lock:
            if self._closed.is_set():
                raise ConnectionError("the watchdog is closed")
            if self._process is None or self._process.poll() is not None:
                log.warning("watchdog ended, starting another")
                self._start()
            assert self._control is not None
            assert self._process is not None
            try:
                self._control.sendall(json.dumps({"relay": module, "url": url}).encode() + b"\n")
                port = self._control.recv(64)
            except OSError:  # a late answer would be taken for that of the next call
                self._process.kill()
                self._process.wait()
                raise
            if not port.strip():
                raise ConnectionError("the watchdog has ended")
            return int(port)

    def close(self) -> None:
        """End the process."""
        self._closed.set()
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._process is not None:
                try:
                    self._process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()

    def _start(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control, far_end = socket.socketpair()
        self._control.settimeout(_ANSWER_SECONDS)
        with far_end:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-m", "spot_work.watchdog", str(far_end.fileno()), str(os.getpid())],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, sys.path)))},
                pass_fds=[far_end.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # signals to the worker's process group are the worker's to handle
            )

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_SECONDS):
            with contextlib.suppress(OSError):
                control = self._control
                if control is not None:
                    control.sendall(b"{}\n")
