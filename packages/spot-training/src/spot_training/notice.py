"""Interruption notices, from the agent's file, SIGTERM or the EC2 instance metadata service (IMDSv2)."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

from spot_training.errors import log, one_line, say

_HOST: Final = "http://169.254.169.254"
_VENDOR: Final = Path("/sys/devices/virtual/dmi/id/sys_vendor")


def _is_ec2() -> bool:
    """Return whether this is an EC2 instance. Source: EC2 user guide, "Identify EC2 Linux instances"."""
    try:
        return _VENDOR.read_text().strip() == "Amazon EC2"
    except OSError:
        return False


def get_metadata(path: str, host: str = _HOST) -> str | None:
    """Return the text below ``latest/meta-data``; None if missing; ``OSError`` without a response.

    It times out after two seconds: the service responds in milliseconds or not.
    """
    from http.client import HTTPConnection, HTTPException  # on use: half of what this library imports

    connection = HTTPConnection(host.removeprefix("http://"), timeout=2)  # link-local: no proxy

    def ask(method: str, below: str, header: str, value: str) -> str | None:
        connection.request(method, f"/latest/{below}", headers={f"X-aws-ec2-metadata-{header}": value})
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
        if response.status not in (200, 404):
            raise OSError(f"{host}: {response.status} for {below}")
        return text if response.status == 200 else None

    try:
        token = ask("PUT", "api/token", "token-ttl-seconds", "60")
        return ask("GET", f"meta-data/{path}", "token", token or "")
    except (HTTPException, ValueError) as error:
        raise OSError(f"{host} is no metadata service: {error!r}") from error
    finally:
        connection.close()


NOTICE_VARIABLE: Final = "GPU_SPOT_NOTICE"
GRACE_SECONDS: Final = 100.0
"""Seconds after a SIGTERM without a notice: docs/contract.md, "The time"."""
_READ_INTERVAL_SECONDS: Final = 1.0
_POLL_INTERVAL_SECONDS: Final = 5.0  # EC2 guide, "Spot Instance interruption notices"
_notices: Final[weakref.WeakSet[Notice]] = weakref.WeakSet()


def _restore_in_child() -> None:
    """Let a forked process be terminated as before: its training is the parent's."""
    while newest := [notice for notice in _notices if notice.has_handler]:
        newest[0].restore_handler()


os.register_at_fork(after_in_child=_restore_in_child)


class Notice:
    """Detects a pending interruption and its deadline.

    Reading ``received`` takes a microsecond: check it at every step. SIGTERM no longer ends the process: the
    caller must stop. The previous handler is called too. Python installs handlers in the main thread only; in
    other threads only the file and the metadata service are used. A thread polls the metadata service, only
    on EC2 without a node agent (no ``$GPU_SPOT_NOTICE``).
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        metadata: Callable[[str], str | None] | None = None,
    ) -> None:
        """``metadata``: like `get_metadata`, which is used by default on an EC2 instance."""
        environment = os.environ if environment is None else environment
        file = environment.get(NOTICE_VARIABLE)
        self._file = Path(file) if file else None
        self._wall, self._clock = wall, clock
        self._last_read_at, self._received = -_READ_INTERVAL_SECONDS, False
        self._signalled: float | None = None
        self._ends_at: float | None = None
        """When the instance is interrupted, by ``clock``: no wall clock that steps moves it."""
        self._previous_handler: Any = None
        self._closed = threading.Event()
        self.defers = False
        """Whether the previous handler waits for ``call_previous``: it may end the process, or the loop."""
        self.exits = False
        """Whether the next SIGTERM ends the process with code 0: the state is saved."""
        self._has_handler = self._install_handler()
        _notices.add(self)
        if self._file is None and (metadata is not None or _is_ec2()):
            threading.Thread(target=self._poll, args=(metadata or get_metadata,), daemon=True).start()

    @property
    def received(self) -> bool:
        """Whether an interruption notice or SIGTERM was received."""
        if self._signalled is not None or self._received:
            return True
        now = self._clock()
        if self._file is not None and now - self._last_read_at >= _READ_INTERVAL_SECONDS:
            self._last_read_at = now
            self._read(self._file)
        return self._received

    @property
    def deadline(self) -> float | None:
        """When the instance is interrupted (epoch seconds); None before a notice."""
        return None if (seconds := self._seconds()) is None else round(self._wall() + seconds, 3)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, at least 0; None before a notice."""
        return None if (seconds := self._seconds()) is None else max(0.0, seconds)

    def _seconds(self) -> float | None:
        if not self.received:
            return None
        if self._ends_at is None and self._file is not None:
            self._read(self._file)  # SIGTERM may come before the file is read
        if self._ends_at is not None:
            return self._ends_at - self._clock()
        return None if self._signalled is None else self._signalled + GRACE_SECONDS - self._clock()

    @property
    def has_handler(self) -> bool:
        """Whether SIGTERM is handled here: not in other threads, nor after the script's own handler."""
        return self._has_handler and signal.getsignal(signal.SIGTERM) == self._on_signal

    def take_back(self) -> None:
        """Handle SIGTERM again if the script has set its own handler since; that becomes the previous one."""
        now = signal.getsignal(signal.SIGTERM)
        if not self._has_handler or isinstance(getattr(now, "__self__", None), Notice):
            return
        if threading.current_thread() is threading.main_thread() and self._install_handler():
            say("SIGTERM had got another handler: it is called after the save")

    def call_previous(self) -> None:
        """Call the previous handler, which was deferred; the state is saved, whatever it raises."""
        if self.defers and self._signalled is not None and callable(self._previous_handler):
            try:
                self._previous_handler(signal.SIGTERM, None)
            except BaseException as error:
                log.warning("the script's SIGTERM handler: %s", one_line(error))

    def close(self) -> None:
        """Restore the previous SIGTERM handler and stop polling."""
        self._closed.set()
        self.restore_handler()

    def restore_handler(self) -> None:
        """Restore the previous SIGTERM handler."""
        if self._has_handler:
            before = self._previous_handler
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
            self._has_handler = False

    def _install_handler(self) -> bool:
        try:
            self._previous_handler = signal.signal(signal.SIGTERM, self._on_signal)
        except ValueError:
            log.warning("no SIGTERM handler: it can be installed in the main thread only")
            return False
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.exits:
            raise SystemExit(0)
        if self._signalled is None:
            self._signalled = self._clock()
        if callable(self._previous_handler) and not self.defers:
            self._previous_handler(number, frame)

    def _read(self, file: Path) -> None:
        try:
            text = file.read_text("utf-8")
        except OSError:
            return  # no notice yet
        try:
            seconds = float(json.loads(text)["deadline"]) - self._wall()
        except (ValueError, KeyError, TypeError):
            log.warning("%s has no deadline; assuming two minutes", file)
            seconds = 120.0
        self._ends_at = self._clock() + seconds
        self._received = True  # whatever it says

    def _poll(self, metadata: Callable[[str], str | None]) -> None:
        while not self._received:
            try:
                document = metadata("spot/instance-action")
            except OSError:
                document = None  # retried; SIGTERM is still handled
            if document is not None:
                try:
                    time_text = datetime.fromisoformat(json.loads(document)["time"])
                    seconds = time_text.timestamp() - self._wall()
                except (ValueError, KeyError, TypeError):
                    seconds = 120.0
                self._ends_at = self._clock() + seconds
                self._received = True
            if self._closed.wait(_POLL_INTERVAL_SECONDS):
                return
