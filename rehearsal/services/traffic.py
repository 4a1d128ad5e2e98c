"""The client of a rehearsal and its external API, as processes; the client's time is real."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.real import load_client
from rehearsal.machines.real.broker import free_port
from rehearsal.machines.real.load_client import LoadStatus
from rehearsal.services.hosts import ENDS_IN, Processes
from rehearsal.services.world import API_CALLS_PER_HOUR, OVERFLOW_SECONDS, PACE, RATE

_CLIENT: Final = "client"
_API: Final = "api"
_API_MODULE: Final = "api_stand_in.py"
_API_STARTS_IN: Final = 30.0


class Traffic:
    """Sends requests from ``begin`` to ``finish``; simulated time waits for real time in ``advance``."""

    def __init__(self, processes: Processes, folder: Path, url: str) -> None:
        self._processes = processes
        self._status = folder / "status"
        self._url = url
        self._client: subprocess.Popen[str] | None = None
        self._now = 0.0
        self._advanced_at = time.perf_counter()
        self._port = free_port()
        self._api = processes.start(_API, [_API_MODULE, str(self._port)], {})

    def start_time(self, now: float) -> None:
        """Start time at ``now`` (simulated epoch seconds), when the external API accepts connections."""
        end = time.perf_counter() + _API_STARTS_IN
        while not self._api_accepts_connections():
            if self._api.poll() is not None or time.perf_counter() > end:
                raise LocalCloudError(f"{_API_MODULE} has not started: {self._processes.last_output(_API)}")
            time.sleep(0.05)
        self._now, self._advanced_at = now, time.perf_counter()

    def begin(self) -> None:
        """Start the client."""
        self._client = self._processes.start(
            _CLIENT,
            ["-m", load_client.__name__, f"{RATE:g}", str(self._status)],
            {
                "SPOT_WORK_URL": self._url,
                "OCR_API_URL": f"http://127.0.0.1:{self._port}/",
                "OCR_API_KEY": "rehearsed",
                "OCR_API_CALLS_PER_HOUR": str(API_CALLS_PER_HOUR),
                "OCR_OVERFLOW_SECONDS": f"{OVERFLOW_SECONDS:g}",
            },
        )

    def advance(self, now: float) -> None:
        """Wait until simulated time is ``now``."""
        due_at = self._advanced_at + (now - self._now) / PACE
        time.sleep(max(due_at - time.perf_counter(), 0.0))
        self._now, self._advanced_at = now, time.perf_counter()
        if self._client is not None and self._client.poll() is not None:
            raise LocalCloudError(f"the client has ended: {self._processes.last_output(_CLIENT)}")

    def status(self) -> LoadStatus:
        """Return the client's counts."""
        return load_client.read(self._status)

    def finish(self) -> LoadStatus:
        """Wait until every request is answered or lost, and return the counts."""
        if self._client is not None:
            self._client.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._client.wait(ENDS_IN + load_client.TIMEOUT_SECONDS)
        return self.status()

    def close(self) -> None:
        """End both processes."""
        for process in filter(None, (self._client, self._api)):
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def _api_accepts_connections(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False
